"""What readers learn of records that a transaction hides, whose end the brokers have lost."""

import pytest

from errata import Network, tumbling
from errata.processors.tasks import lost_records
from errata.processors.tasks.lost_records import Loss, claim, find
from errata.processors.wire.report import NEVER, PENDING, Report
from errata.testing import Driver
from errata.topics.cluster import TopicPartition
from tests.steps import ended

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def driver():
    net = Network("hiding")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "price": "long"},
        identity=["key"],
        event_time="at",
        keep="30d",
    )
    trades.aggregate("sums", by=[], window=tumbling("1h"), total="sum(price)")
    with Driver(net, mode="upstream") as driver:
        for number in range(3):
            tuple_ = {"key": f"k{number}", "at": number, "price": 1}
            driver.send("trades", {"op": "insert", "after": tuple_})
            driver.close_epoch()
        yield driver


def begin_again(driver, task):
    """Begin the next attempt of a task, up to its first step."""
    place = driver.tasks.index(task)
    driver.attempts[place].close()
    driver.attempts[place] = attempt = task.steps()
    for _ in attempt:
        if task.started:
            return


@pytest.mark.parametrize(
    ("loss", "end"),
    [
        (Loss(HERE, end=9, log_end=9, is_hidden=True), 9),
        (Loss(HERE, end=9, log_end=9), 9),
        (Loss(HERE, end=9, log_end=4), 4),
    ],
    ids=["hidden", "another record", "a shorter log"],
)
def test_a_claim_tells_up_to_where_records_may_be_left(loss, end):
    old = Report("ingest.trades.0", ends={HERE: (9, 7), THERE: (5, 6)})
    claimed = claim(old, [loss])
    assert claimed.ends == {HERE: (end, NEVER), THERE: (5, 6)}
    assert claimed.rebuilt == PENDING


def test_readers_wait_for_what_was_hidden_though_nothing_is_written_again(driver, monkeypatch):
    task, view = driver.ingests["trades"], driver.shared.view
    _, end = view.complete("trades", 0)
    place = TopicPartition(driver.plan.deployment.topic("trades"), 0)

    def all_hidden(shared, offsets):
        yield False
        return {}, set(offsets)

    with monkeypatch.context() as patch:
        patch.setattr(lost_records, "_records_at", all_hidden)
        begin_again(driver, task)
    driver.close_epoch()
    view.poll()
    assert 0 <= task.report.rebuilt < PENDING
    assert task.report.ends == {place: (end, NEVER)}  # nothing was lost: nothing was written again
    assert view.complete("trades", 0)[1] == end
    assert ended(find(driver.shared, task.report)) == []  # there is no reason to do it again
