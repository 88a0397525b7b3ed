"""The tasks and sweepers of one process."""

import pytest

from errata import Network, tumbling
from errata.run.parts import Parts
from errata.sweepers.sweeper import Sweeper
from errata.testing import Driver


@pytest.fixture
def parts(tmp_path):
    net = Network("parted")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    for name in ("one", "two"):
        trades.aggregate(
            name, by=[], window=tumbling("1m"), mode="upstream", n="count(*)", scope=name
        )
    with Driver(net) as driver:
        parts = Parts(driver.shared, tmp_path)
        parts.beside |= {"one", "two"}
        yield parts


@pytest.mark.parametrize("stay", [True, False])
def test_tasks_that_run_as_long_as_their_process_have_sweepers_in_common(parts, stay):
    actors = [parts.tasks(scope, 0, stay=stay) for scope in ("one", "two")]
    sweepers = [actor for found in actors for actor in found if isinstance(actor, Sweeper)]
    asked = [found[0].replays.sweepers["trades"][0] for found in actors]
    assert len(sweepers) == (1 if stay else 2)
    assert (asked[0] is asked[1]) == stay
    for actor in sweepers:
        actor.close()
