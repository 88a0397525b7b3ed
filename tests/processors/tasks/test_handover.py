"""What a process commits is handed to its readers once it is known what comes before."""

from collections import defaultdict
from types import SimpleNamespace

import polars as pl
import pytest

from errata import Network
from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.partitioner import Emission
from errata.processors.tasks import attempt
from errata.processors.tasks.handover import Handover, Written
from errata.processors.wire.report import Report
from errata.testing import Driver
from errata.topics.cluster import TopicPartition
from tests.processors.tasks.trades import trades_of

ONE, TWO = "ingest.trades.0", "ingest.trades.1"
PLACE = TopicPartition("net.trades", 0)


class Codec:
    """Takes what is handed over."""

    def __init__(self):
        self.handed, self.missed = defaultdict(list), []

    def hand(self, place, offsets, *, is_certain, before, **columns):
        self.handed[place.partition].append(SimpleNamespace(offsets=offsets, **columns))
        self.is_certain, self.before = is_certain, before

    def miss(self, place):
        self.missed.append(place)


@pytest.fixture
def world():
    codec, read = Codec(), [0]
    reports = {task: Report(task, attempt=1, process=7) for task in (ONE, TWO)}
    view = SimpleNamespace(
        newest_ms=0,
        writers=lambda arc, partition: [ONE, TWO],
        of=reports.__getitem__,
        has_read_to=lambda end: read[0] >= end,
    )
    deployment = SimpleNamespace(topic=lambda arc: f"net.{arc}")
    shared = SimpleNamespace(
        hands_over=True,
        process=7,
        view=view,
        plan=SimpleNamespace(deployment=deployment),
        codec=lambda arc: codec,
    )
    handover = Handover(shared)

    def begin(task, place=PLACE):
        handover.begin(task, place, arc="trades")

    def hand(task, offsets, *, reported, count=None):
        """Hand over records of one partition, as many as there are offsets."""
        names = [b"k"] * (len(offsets) if count is None else count)
        partitions = pl.Series([0] * len(names))
        emission = Emission("trades", 1, pl.DataFrame({"x": names}), partitions)
        written = [Written(emission, names, names)]
        handover.hand(Meta(task, 1, 1), written, {PLACE: offsets}, reported)

    return SimpleNamespace(
        codec=codec, read=read, reports=reports, shared=shared,
        handover=handover, begin=begin, hand=hand,
    )  # fmt: skip


def test_it_is_certain_once_the_reports_up_to_its_own_are_read(world):
    world.begin(ONE)
    world.hand(ONE, range(0, 2), reported=5)
    assert not world.codec.is_certain()
    world.read[0] = 5
    assert world.codec.is_certain()


def test_it_is_certain_once_all_that_were_open_with_it_have_ended(world):
    world.read[0] = 9
    world.begin(ONE)
    world.begin(TWO)
    world.hand(TWO, range(2, 4), reported=5)
    certain = world.codec.is_certain
    assert not certain()
    world.hand(ONE, range(0, 2), reported=7)
    world.begin(ONE)
    assert certain()


def test_one_that_is_open_elsewhere_does_not_matter(world):
    world.read[0] = 9
    world.begin(ONE, PLACE._replace(partition=1))
    world.begin(TWO)
    world.hand(TWO, range(2, 4), reported=5)
    assert world.codec.is_certain()


def test_nothing_is_certain_where_another_process_writes(world):
    world.read[0] = 9
    world.begin(ONE)
    world.hand(ONE, range(0, 2), reported=5)
    assert world.codec.is_certain()
    world.reports[TWO] = Report(TWO, attempt=2, process=8)
    assert not world.codec.is_certain()
    world.begin(ONE)
    world.hand(ONE, range(4, 6), reported=7)
    assert world.codec.is_certain is None


def test_what_another_process_wrote_before_it_lost_a_task_is_read(world):
    world.read[0] = 9
    world.reports[TWO] = Report(TWO, attempt=1, process=6)
    world.begin(ONE)
    world.hand(ONE, range(0, 2), reported=5)
    assert world.codec.is_certain is None
    world.begin(ONE)
    world.reports[TWO] = Report(TWO, attempt=2, process=7)
    world.hand(ONE, range(4, 6), reported=7)
    assert world.codec.is_certain is None, "it may have written before the other process"
    world.begin(ONE)
    world.hand(ONE, range(9, 11), reported=9)
    assert world.codec.is_certain()
    assert (world.codec.before, world.codec.missed) == (9, [PLACE])
    world.begin(TWO)
    world.hand(TWO, range(12, 13), reported=9)
    assert (world.codec.before, world.codec.missed) == (11, [PLACE])


def test_a_task_that_was_taken_over_and_taken_back_meanwhile_makes_nothing_certain(world):
    world.read[0] = 9
    world.begin(ONE)
    world.hand(ONE, range(0, 2), reported=5)
    world.reports[TWO] = Report(TWO, attempt=3, process=7)
    assert not world.codec.is_certain()


def test_after_one_that_may_not_have_committed_nothing_is_certain_up_to_its_next_attempt(world):
    world.read[0] = 9
    world.begin(ONE)
    world.handover.fail(ONE)
    assert world.codec.missed == [PLACE]
    world.begin(TWO)
    world.hand(TWO, range(2, 4), reported=5)
    assert world.codec.is_certain is None
    world.begin(TWO)
    world.reports[ONE] = Report(ONE, attempt=2, process=7)
    world.hand(TWO, range(5, 7), reported=7)
    assert world.codec.is_certain is None, "it may have written before"
    world.begin(TWO)
    world.hand(TWO, range(8, 9), reported=8)
    assert world.codec.is_certain()
    assert (world.codec.before, world.codec.missed) == (8, [PLACE, PLACE])
    assert [part.offsets.start for part in world.codec.handed[0]] == [2, 5, 8]


def test_one_that_failed_elsewhere_or_before_it_wrote_does_not_matter(world):
    world.begin(TWO, PLACE._replace(partition=1))
    world.handover.fail(TWO)
    world.handover.fail(ONE)
    world.begin(ONE)
    world.hand(ONE, range(0, 2), reported=0)
    assert world.codec.is_certain()


def test_records_between_those_of_a_transaction_are_read(world):
    world.begin(ONE)
    world.hand(ONE, range(0, 5), reported=5, count=3)
    assert world.codec.missed == [PLACE]
    assert not world.codec.handed


def test_records_are_read_up_to_the_last_that_were_not_handed_over(world):
    world.read[0] = 9
    world.begin(ONE)
    world.hand(ONE, range(0, 5), reported=1)
    world.begin(ONE)
    world.begin(TWO)
    world.hand(ONE, range(20, 30), reported=1, count=9)
    world.hand(TWO, range(10, 12), reported=1)
    assert world.codec.handed[0][-1].offsets == range(10, 12)
    assert world.codec.before == 30


def test_records_in_the_place_of_lost_ones_are_read(world):
    world.begin(ONE)
    world.hand(ONE, range(0, 5), reported=5)
    missed = len(world.codec.missed)
    world.begin(TWO)
    world.hand(TWO, range(3, 4), reported=6)
    assert len(world.codec.missed) == missed + 1
    world.begin(ONE)
    world.hand(ONE, range(5, 6), reported=7)
    assert [part.offsets for part in world.codec.handed[0]] == [range(0, 5), range(5, 6)]


def test_many_records_wait_for_what_another_task_writes_to_the_partition(monkeypatch):
    monkeypatch.setattr(attempt, "IN_ONE_PIECE", 1)
    net = Network("pieces")
    trades_of(net).where("cheap", "price < 2")
    with Driver(net) as driver:
        driver.shared.hands_over = True
        task = driver.ingests["trades"]
        place = TopicPartition(driver.plan.deployment.topic("trades"), 0)

        def send(*keys):
            for key in keys:
                tuple_ = {"key": key, "at": 1, "price": 1}
                driver.send("trades", {"op": "insert", "after": tuple_})
            driver.close_epoch()

        driver.shared.handover.begin("ingest.trades.1", place, arc="trades")
        send("few")
        known = task.report
        assert known.done == driver.epoch
        send("more", "than", "one")
        assert task.report is known
        driver.shared.handover.fail("ingest.trades.1")
        driver.close_epoch()
        assert task.report.done > known.done


def test_each_partition_gets_its_own_records(world):
    places = [PLACE._replace(partition=partition) for partition in (0, 2)]
    emission = Emission("trades", 4, pl.DataFrame({"x": [1, 2, 3]}), pl.Series([2, 0, 2]))
    names = [b"2", b"1", b"3"]
    written = [Written(emission.in_order(), names, names), Written(emission, [], [])]
    for place in places:
        world.begin(ONE, place)
    offsets = dict(zip(places, (range(7, 8), range(3, 5)), strict=True))
    world.handover.hand(Meta(ONE, 1, 4), written, offsets, 0)
    (first,), (second,) = world.codec.handed[0], world.codec.handed[2]
    assert (first.offsets, first.keys, first.revisions["x"].to_list()) == (range(7, 8), [b"2"], [2])
    assert (second.offsets, second.keys) == (range(3, 5), [b"1", b"3"])
    assert second.revisions["x"].to_list() == [1, 3]


def test_a_process_that_hands_nothing_over_notes_nothing(world):
    world.shared.hands_over = False
    world.begin(ONE)
    world.hand(ONE, range(0, 2), reported=5)
    world.handover.fail(ONE)
    assert not world.codec.handed
    assert not world.codec.missed
