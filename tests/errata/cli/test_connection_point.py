"""`errata connection-point`: boxes of a running network begin to keep their history, and end to."""

import json

import pytest

from errata.cli.connection_point import PointError, check
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import PlanMismatchError, added, deploy, read_plan
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from errata.testing import Driver
from tests.errata.conftest import Errata
from tests.errata.network_file import write_network
from tests.errata.running import Running

BELOW = """
mid = prices.aggregate("mid", total="sum(price)", top="max(price)", emit="on_update", KEEP
                       by=["symbol"], window=hopping("30m", every="20m"))
mid.aggregate("hours", by=["symbol"], window=hopping("60m", every="60m"), emit="on_update",
              total="sum(total)")
"""


def declare(running: Running, keep: str) -> None:
    """Declare the network with `mid`, with or without history, in place of two aggregates."""
    running.declare(2)
    file = running.folder / "moved.py"
    text = file.read_text()
    file.write_text(text[: text.index("options =")] + BELOW.replace("KEEP", keep))


@pytest.mark.kafka
def test_a_connection_point_comes_and_goes(running: Running) -> None:
    declare(running, "")
    running.start()
    running.send(300)
    running.wait_for(running.at_work, "takes in what there is")
    declare(running, 'keep="1d",')
    refused = running.errata("run", "moved.py", "--scope", "prices")
    assert "is deployed with other connection points ('mid' differ)" in refused.stderr
    for version, action, keep in ((2, "add", 'keep="1d",'), (3, "drop", "")):
        declare(running, keep)
        done = running.errata("connection-point", action, "moved.py", "mid", "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["version"] == version
        assert (told["tuples"].get("mid", 0) > 100) == (action == "add")
        again = running.errata("connection-point", action, "moved.py", "mid")
        assert again.returncode == 1
        assert "arc 'mid' is" in again.stderr
        running.send(200)
        running.wait_for(running.at_work, "goes on")
        if action == "add":
            assert running.found("mid") == running.wanted()
        explained = json.loads(running.errata("explain", "moved.py", "--json").stdout)["boxes"]
        assert explained["hours"]["anchor"] == ("mid" if action == "add" else "prices")


@pytest.fixture
def network(driver: Driver, errata: Errata, tmp_path):
    """A function that declares figure 1 with a change; `sums` is a connection point as deployed."""

    def changed(old: str = "", new: str = ""):
        file = write_network(tmp_path)
        file.write_text(file.read_text().replace(old, new) if old else file.read_text())
        return load("tape.py")

    return changed


WITHOUT = ('n="count(*)", keep="1d"', 'n="count(*)"')
WITH = ('"price > 0")', '"price > 0", keep="1d")')


@pytest.mark.parametrize(
    ("change", "adds", "arc", "told"),
    [
        (("", ""), True, "sums", "arc 'sums' is a connection point already"),
        (("", ""), False, "plain", "arc 'plain' is no connection point"),
        (("", ""), True, "plain", "'plain' has no keep= in the network's file: add it there first"),
        (("", ""), False, "sums", "'sums' has keep= in the network's file: take it out there"),
        (WITHOUT, True, "prices", "'prices' is a source: its keep= also says how old"),
        (WITHOUT, True, "sum", "network 'figure' has no box 'sum': it has sums, plain, counts"),
    ],
)
def test_what_can_not_be_added_or_dropped(driver, network, change, adds, arc, told) -> None:
    current = read_plan(driver.cluster, "figure")
    with pytest.raises(ErrataError) as caught:
        check(network(*change), current, [arc], adds=adds)
    assert told in str(caught.value)


def test_all_that_changes_has_to_be_named(driver, network, tmp_path) -> None:
    file = write_network(tmp_path)
    text = file.read_text()
    for change in (WITHOUT, WITH):
        text = text.replace(*change)
    file.write_text(text)
    current = read_plan(driver.cluster, "figure")
    with pytest.raises(PointError, match="keep= of 'plain' differs from what is deployed, too"):
        check(load("tape.py"), current, ["sums"], adds=False)


def test_a_changed_connection_point_is_not_run_as_deployed(driver, network) -> None:
    plan = compile_network(network(*WITHOUT))
    with pytest.raises(PlanMismatchError, match=r"other connection points \('sums' differ\)"):
        added(plan, deploy(driver.cluster, driver.plan))
