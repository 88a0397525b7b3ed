"""After a doubtful commit a task continues without the uncommitted plans of its last attempt."""

import pytest

from errata import Network, tumbling
from errata.testing import Driver
from errata.topics.cluster import DoubtfulCommitError, TopicPartition


def counts() -> Network:
    net = Network("tape")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis"},
        identity=["key"],
        event_time="at",
        keep="1d",
    )
    trades.aggregate("counts", by=[], window=tumbling("1s"), n="count(*)")
    return net


def test_a_delete_is_not_buried_when_a_doubtful_commit_has_inserted_again():
    """The sweeper reports once a second, so the delete waits for its tombstone meanwhile."""

    def doubt(step: str) -> None:
        if step == "committed":
            driver.cluster.on_step = None
            raise DoubtfulCommitError("played: it took effect, but that is not known")

    with Driver(counts()) as driver:
        trade = {"key": "a", "at": 5}
        for line in ({"op": "insert", "after": trade}, {"op": "delete", "before": trade}):
            driver.send("trades", line)
            driver.close_epoch()
        driver.send("trades", {"op": "insert", "after": trade})
        driver.cluster.on_step = doubt
        with pytest.raises(DoubtfulCommitError):
            driver.close_epoch()
        driver.attempts[0] = driver.tasks[0].steps()
        for number in range(30):  # more than a second, so that the sweeper reports
            driver.send("trades", {"op": "insert", "after": {"key": str(number), "at": number}})
            driver.close_epoch()
        driver.cluster.compact("tape.trades", horizons=[2**40])
        records, _ = driver.cluster.log(TopicPartition("tape.trades", 0)).read(0, 2**40)
        assert None not in records.values
        assert trade in driver.table("trades")
