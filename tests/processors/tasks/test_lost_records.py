"""What readers learn of records that a transaction hides, whose end the brokers have lost."""

import json
from dataclasses import replace
from itertools import compress, islice, repeat

import pytest

from errata import Network, tumbling
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.ingest import stamping_task
from errata.processors.tasks import lost_records
from errata.processors.tasks.lost_records import Loss, LostRecordsError, claim, find, hidden
from errata.processors.tasks.scope_task import ScopeTask
from errata.processors.wire.report import NEVER, PENDING, Report
from errata.testing import Driver
from errata.topics.cluster import DoubtfulCommitError, TopicPartition
from tests.processors.tasks.trades import trades_of
from tests.steps import ended, first_step

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def driver():
    net = Network("hiding")
    trades = trades_of(net)
    trades.aggregate("sums", by=[], window=tumbling("1h"), total="sum(price)")
    cheap = trades.where("cheap", "price < 2", keep="30d", scope="cheap")
    cheap.sink("out", envelope="upsert", format="json")
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
    driver.attempts[place] = task.steps()
    first_step(driver.attempts[place], task)


@pytest.mark.parametrize(
    ("loss", "end"),
    [
        (Loss(HERE, end=9, log_end=9), 9),
        (Loss(HERE, end=9, log_end=4), 4),
    ],
    ids=["another record", "a shorter log"],
)
def test_a_claim_tells_up_to_where_records_may_be_left(loss, end):
    old = Report("ingest.trades.0", ends={HERE: (9, 7), THERE: (5, 6)})
    claimed = claim(old, [loss])
    assert claimed.ends == {HERE: (end, NEVER), THERE: (5, 6)}
    assert claimed.rebuilt == PENDING


def test_what_only_lacks_the_end_of_its_transaction_is_not_lost(driver):
    task, cluster = driver.ingests["trades"], driver.shared.cluster
    place = TopicPartition(driver.plan.deployment.topic("trades"), 0)
    before = task.report
    end, _ = before.ends[place]
    cluster.lose(place, end)
    assert hidden(cluster, [place])
    begin_again(driver, task)
    assert hidden(cluster, [place]) == {}
    assert (task.report.ends, task.report.rebuilt) == (before.ends, before.rebuilt)
    records, _ = cluster.log(place).read(0, 1000)
    assert len(records.values) - records.values.count(None) == 3


def test_what_the_transaction_of_another_hides_is_not_lost(driver, monkeypatch):
    task = driver.ingests["trades"]
    before = task.report

    def all_hidden(shared, offsets):
        yield False
        return {}, set(offsets)

    monkeypatch.setattr(lost_records, "_records_at", all_hidden)
    begin_again(driver, task)
    assert (task.report.ends, task.report.rebuilt) == (before.ends, before.rebuilt)


def test_a_task_writes_nothing_where_it_could_not_look_for_its_last_record(driver, monkeypatch):
    task = driver.ingests["trades"]
    place = TopicPartition(driver.plan.deployment.topic("trades"), 0)
    end, _ = task.report.ends[place]
    found = [[Loss(place, end, end, is_hidden=True)], [Loss(place, end, end)]]

    def find(shared, report):
        yield False
        return found.pop(0)

    task.attempt.found(task.report, hidden={place})
    monkeypatch.setattr(lost_records, "find", find)
    driver.send("trades", {"op": "insert", "after": {"key": "k9", "at": 9, "price": 1}})
    driver.close_epoch()
    assert task.report.ends[place][0] == end  # it has not written
    with pytest.raises(DoubtfulCommitError, match="has another record at offset"):
        driver.close_epoch()
    assert not found


def lose_end(cluster, task, place):
    """Let a task write a tombstone, which no report names, and lose the end of its transaction."""
    transactions = task.attempt.open()
    transactions.begin()
    transactions.produce(place.topic, partitions=[place.partition], keys=[b"k"], values=[None])
    transactions.flush()
    transactions.commit()
    cluster.lose(place, cluster.end(place) - 1)


def test_a_transaction_whose_end_is_lost_is_ended_by_the_next_attempt(driver):
    task, cluster = driver.ingests["trades"], driver.shared.cluster
    place = TopicPartition(driver.plan.deployment.topic("trades"), 0)
    lose_end(cluster, task, place)
    assert hidden(cluster, [driver.shared.view.source, place]) == {place: cluster.end(place) - 1}
    assert ended(find(driver.shared, task.report)) == []
    begin_again(driver, task)
    assert hidden(cluster, [driver.shared.view.source, place]) == {}


def test_a_start_does_not_wait_for_what_its_own_transaction_hides(driver, monkeypatch):
    task, cluster = driver.ingests["trades"], driver.shared.cluster
    place = TopicPartition(driver.plan.deployment.topic("trades"), 0)
    start = task.start

    def start_that_waits():
        lose_end(cluster, task, place)
        yield from [False] * 50
        raise AssertionError("it waits")

    monkeypatch.setattr(lost_records, "CHECKED_S", 0.0)
    monkeypatch.setattr(lost_records, "STAYS_OPEN_S", 0.0)
    monkeypatch.setattr(task, "start", start_that_waits)
    with pytest.raises(DoubtfulCommitError, match="hides what its start waits for"):
        begin_again(driver, task)
    monkeypatch.setattr(task, "start", start)
    begin_again(driver, task)
    assert hidden(cluster, [place]) == {}


def test_a_start_waits_for_what_the_transaction_of_another_hides_for_a_while(driver, monkeypatch):
    task, waits = driver.ingests["trades"], [False] * 5
    place = TopicPartition(driver.plan.deployment.topic("trades"), 0)
    start = task.start

    def start_that_waits():
        yield from waits
        yield from start()

    def all_hidden(cluster, places):
        return {place: 7}

    monkeypatch.setattr(lost_records, "CHECKED_S", 0.0)
    monkeypatch.setattr(lost_records, "hidden", all_hidden)
    monkeypatch.setattr(task, "_end_hidden", lambda: iter([False]))
    monkeypatch.setattr(task, "start", start_that_waits)
    begin_again(driver, task)
    assert task.started


def lose_reports(cluster, view, offset):
    """Let the progress topic lose its end, and let a process that has read nothing follow."""
    cluster.lose(view.source, offset)
    view.reader = cluster.reader({view.source: 0, view.plans: 0})
    view.reports.clear()
    view._last_valid.clear()


def test_a_report_that_a_transaction_hides_is_read_by_the_next_attempt(driver, monkeypatch):
    task, view, cluster = driver.ingests["trades"], driver.shared.view, driver.shared.cluster
    report = task.report
    task.attempt.open().begin()
    ended(task.attempt.finish(report))
    lose_reports(cluster, view, cluster.end(view.source) - 1)
    assert cluster.stable_ends([view.source])[view.source] < cluster.end(view.source)
    monkeypatch.setattr(lost_records, "HIDDEN_S", 0.2)
    begin_again(driver, task)
    assert task.report.attempt == report.attempt + 1
    assert task.report.done == report.done
    assert not view.ignored


def test_a_task_whose_last_report_is_lost_ends(driver):
    task, view, cluster = driver.ingests["trades"], driver.shared.view, driver.shared.cluster
    lost = task.report
    records, _ = cluster.log(view.source).read(0, 1000)
    own = [key == task.name.encode() for key in records.keys]
    lose_reports(cluster, view, max(compress(records.offsets, own)))
    told = f"lost its last report, of attempt {lost.attempt} and epoch {lost.done}: hiding.progress"
    with pytest.raises(LostRecordsError, match=told):
        begin_again(driver, task)


def test_an_idle_network_stamps_an_epoch_for_a_task_that_waits_for_one(driver, monkeypatch):
    task, view = driver.ingests["trades"], driver.shared.view
    newest = view.newest_epoch()
    monkeypatch.setattr(stamping_task, "AWAITED_MS", 0)
    steps = driver.attempts[driver.tasks.index(task)]
    for _ in range(20):
        next(steps)
    assert view.newest_epoch() == newest
    waiting = next(view.of(other) for other in view.reports if not other.startswith("ingest"))
    view.note(replace(waiting, attempt=waiting.attempt + 1, rebuilt=PENDING))
    for _ in range(20):
        next(steps)
    assert view.newest_epoch() > newest


def test_a_reader_does_not_wait_for_what_the_brokers_have_lost(driver):
    task, view = driver.ingests["trades"], driver.shared.view
    place = TopicPartition(driver.plan.deployment.topic("trades"), 0)
    offset, epoch = task.report.ends[place]
    view.note(replace(task.report, ends={place: (offset + 50, epoch)}))
    reader = ArcInput(view, driver.shared.codec("trades"), 0, done=-1, resume=0)
    reader.poll()
    assert reader.frontier() == -1  # it waits for the end that was told
    view.note(replace(task.report, attempt=task.report.attempt + 1))
    assert reader.frontier() == task.report.done
    reader.close()


def test_a_sink_does_not_keep_what_the_brokers_have_lost(driver):
    """A result that has gone meanwhile is in neither the arc's topic nor the recomputation."""
    task = next(task for task in driver.tasks if task.name == "cheap.0")
    place = TopicPartition(driver.plan.deployment.topic("cheap"), 0)
    lost = {"key": "k9", "at": 9, "price": 1}
    driver.send("trades", {"op": "insert", "after": lost})
    driver.close_epoch()
    assert sunk(driver) == {"k0", "k1", "k2", "k9"}
    last, _ = driver.cluster.log(place).read(0, 1000)
    driver.cluster.lose(place, last.offsets[-1])
    number = driver.tasks.index(task)
    driver.attempts[number].close()
    driver.attempts[number] = task.steps()
    driver.send("trades", {"op": "delete", "before": lost})
    for _ in range(40):  # it waits for an epoch, which ingest stamps once a second
        driver.close_epoch()
    assert 0 <= task.report.rebuilt < PENDING
    assert {row["key"] for row in driver.table("cheap")} == {"k0", "k1", "k2"}
    assert sunk(driver) == {"k0", "k1", "k2"}


def sunk(driver):
    """Return the keys that a consumer of the sink holds."""
    records, _ = driver.cluster.log(TopicPartition("out", 0)).read(0, 1000)
    last = dict(zip(records.keys, records.values, strict=True))
    return {json.loads(key)["key"] for key, value in last.items() if value is not None}


def test_a_task_that_waits_for_replies_looks_for_its_records(driver, monkeypatch):
    """A sweeper of its own arc may wait for them, too: nobody would ever go on."""
    task = next(task for task in driver.tasks if isinstance(task, ScopeTask))

    def lost():
        raise DoubtfulCommitError("records are lost")
        yield False

    def replies():
        while True:
            yield False

    monkeypatch.setattr(task, "check_ends", lost)
    with pytest.raises(DoubtfulCommitError, match="records are lost"):
        next(task._reading_ahead(replies()))


class Running:
    """A task whose idle steps find that a transaction stays open."""

    def __init__(self, driver, monkeypatch):
        self.driver, self.now_s = driver, 1_000.0
        self.task, self.cluster = driver.ingests["trades"], driver.shared.cluster
        self.place = TopicPartition(driver.plan.deployment.topic("trades"), 0)
        monkeypatch.setattr(lost_records, "CHECKED_S", 0.0)
        monkeypatch.setattr(lost_records, "monotonic", lambda: self.now_s)

    def checks(self):
        """Let it check twice, as long after each other as no transaction stays open."""
        steps = self.driver.attempts[self.driver.tasks.index(self.task)]
        for passed_s in (0, lost_records.STAYS_OPEN_S - 1, 1):
            self.now_s += passed_s
            for _ in range(10):
                next(steps)


def test_a_running_task_ends_its_transaction_that_stays_open(driver, monkeypatch):
    running = Running(driver, monkeypatch)
    running.checks()
    lose_end(running.cluster, running.task, running.place)
    with pytest.raises(DoubtfulCommitError, match=r"partition 0 of .*trades lacks the end of a"):
        running.checks()
    assert hidden(running.cluster, [driver.shared.view.source, running.place]) == {}


def test_a_running_task_notices_that_another_has_written_in_the_place_of_its_records(
    driver, monkeypatch
):
    running = Running(driver, monkeypatch)
    running.checks()
    last, _ = running.cluster.log(running.place).read(0, 1000)
    running.cluster.lose(running.place, last.offsets[-1])
    another = running.cluster.transactions("another")
    another.begin()
    another.produce(running.place.topic, partitions=[0] * 3, keys=[b"k"] * 3, values=[None] * 3)
    another.flush()
    another.commit()
    assert running.cluster.end(running.place) > last.offsets[-1] + 1
    told = f"has another record at offset {last.offsets[-1]}"
    with pytest.raises(DoubtfulCommitError, match=told):
        running.checks()


def test_a_running_task_goes_on_if_a_transaction_of_another_stays_open(driver, monkeypatch):
    running = Running(driver, monkeypatch)
    other = running.cluster.transactions("another")
    other.begin()
    other.produce(running.place.topic, partitions=[0], keys=[b"k"], values=[None])
    running.checks()
    end = running.cluster.end(running.place)
    running.checks()  # it has tried, once
    assert running.cluster.end(running.place) == end


@pytest.mark.parametrize("waits_in", ["_rebuilt_at", "_emitted"])
def test_a_rebuild_does_not_wait_for_what_its_own_transaction_hides(driver, monkeypatch, waits_in):
    task = next(task for task in driver.tasks if task.name == "cheap.0")
    place = TopicPartition(driver.plan.deployment.topic("cheap"), 0)
    lose_end(driver.cluster, task, place)
    monkeypatch.setattr(lost_records, "CHECKED_S", 0.0)
    monkeypatch.setattr(lost_records, "STAYS_OPEN_S", 0.0)
    monkeypatch.setattr(task, "_why_rebuild", lambda: "a test")
    task.attempt.report = replace(task.report, done=task.report.done - 1)  # so an epoch is there
    never = {"_rebuilt_at": lambda content: None, "_emitted": lambda *_: repeat(False)}
    monkeypatch.setattr(task, waits_in, never[waits_in])
    with pytest.raises(DoubtfulCommitError, match="lacks the end of a transaction"):
        ended(islice(task.step(), 200))
    assert hidden(driver.cluster, [place]) == {}
