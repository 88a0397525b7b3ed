"""Which epoch a batch of a source's records is, and which records it takes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from errata import Network
from errata.processors.compile.compiler import compile_network
from errata.processors.wire.plan_records import WatermarkRecord
from errata.processors.wire.report import FOREVER, IDLE, Report
from errata.spark_jobs.epochs import Bound
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.spark_jobs.source_epochs import OutdatedStatesError, SourceEpochs
from errata.topics.cluster import TopicPartition

SCOPE, NOW_MS = "ingest.trades", 100_000
ONE, OTHER = Place(SCOPE, 0), Place(SCOPE, 1)
EPOCH = NOW_MS // 50


class World:
    """What the reports and the brokers say."""

    def __init__(self) -> None:
        net = Network("ones")
        net.source(
            "trades", topic="feed", fields={"key": "string", "at": "timestamp-millis"},
            identity=["key"], event_time="at", idle_after="2s", place="spark", keep="1d",
        )  # fmt: skip
        plan = compile_network(net).placed({"trades": 2})
        self.now_ms, self.there, self.newest = NOW_MS, [0, 0], -1
        self.reports = {f"{SCOPE}.{p}": Report(f"{SCOPE}.{p}") for p in range(2)}
        view: Any = SimpleNamespace(
            of=self.reports.__getitem__, newest_epoch=lambda: self.newest, ends={}, plan=plan,
            cluster=SimpleNamespace(stable_ends=self._ends), tasks=lambda scope: [],
            newest=lambda *_, **__: -1, put_back={},
        )  # fmt: skip
        self.ends, self.put_back = view.ends, view.put_back
        job = Job(plan, plan.topology.jobs[SCOPE], {}, {}, writers=2)
        self.epochs = SourceEpochs(job, view, clock_ms=lambda: self.now_ms)

    def _ends(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.there[place.partition] for place in places}

    def report(self, bound: Bound, **more: Any) -> None:
        """Report a batch."""
        resume = {TopicPartition("feed", place.partition): end for place, end in bound.ends.items()}
        for task, old in self.reports.items():
            self.reports[task] = replace(old, done=bound.epoch, resume=resume, **more)
        self.newest = max(self.newest, bound.epoch)


@pytest.fixture
def world() -> World:
    return World()


def test_a_batch_takes_what_is_there_in_an_epoch_by_the_clock(world: World) -> None:
    assert world.epochs.next(Bound()) == Bound()
    world.there = [5, 7]
    first = world.epochs.next(Bound())
    assert (first.epoch, first.starts, first.ends) == (
        EPOCH,
        {ONE: 0, OTHER: 0},
        {ONE: 5, OTHER: 7},
    )
    world.report(first, watermark=30)
    assert world.epochs.next(first) == first
    world.there = [5, 9]
    second = world.epochs.next(first)
    assert (second.epoch, second.starts[OTHER], second.ends[OTHER]) == (EPOCH + 1, 7, 9)
    assert second.newest == {ONE: 30, OTHER: 30}
    assert Bound.of(second.plain()) == second


def test_it_takes_the_epoch_of_others_that_are_ahead_and_follows_them_without_records(
    world: World,
) -> None:
    world.there, world.newest = [1, 0], EPOCH + 70
    first = world.epochs.next(Bound())
    assert first.epoch == EPOCH + 70
    world.report(first)
    world.newest = EPOCH + 80
    second = world.epochs.next(first)
    assert (second.epoch, second.ends) == (EPOCH + 80, first.ends)


@pytest.mark.parametrize(("most", "ends"), [(None, [10, 30]), (40, [10, 30]), (20, [5, 15])])
def test_each_partition_has_its_part_of_the_limit(
    world: World, most: int | None, ends: list[int]
) -> None:
    world.there = [10, 30]
    assert [*world.epochs.next(Bound(), most=most).ends.values()] == ends


def test_it_reads_no_further_than_it_is_told_and_then_follows_no_more(world: World) -> None:
    world.there = [5, 7]
    upto = world.epochs.complete()
    world.there = [50, 70]
    first = world.epochs.next(Bound(), upto=upto)
    assert first.ends == {ONE: 5, OTHER: 7}
    world.report(first)
    world.newest += 10
    assert world.epochs.next(first, upto=upto) == first


def test_a_batch_without_records_reports_that_a_source_ends_or_that_a_partition_is_idle(
    world: World,
) -> None:
    world.there = [5, 7]
    first = world.epochs.next(Bound())
    world.report(first)
    world.ends["trades"] = {0: 5, 1: 8}
    ended = world.epochs.next(first)
    assert (ended.epoch, ended.ends) == (first.epoch + 1, first.ends)
    world.report(ended, watermarks=((ended.epoch, FOREVER),))
    assert world.epochs.next(ended) == ended
    world.ends.clear()
    world.reports = {t: replace(r, watermarks=()) for t, r in world.reports.items()}
    world.epochs.view.of = world.reports.__getitem__  # type: ignore[method-assign]
    world.epochs.next(ended)
    world.now_ms += 2_000
    idle = world.epochs.next(ended)
    assert (idle.idle, idle.ends) == ((0, 1), ended.ends)
    world.report(idle, watermarks=((idle.epoch, IDLE),))
    assert world.epochs.next(idle) == idle


def test_states_that_are_older_than_the_reports_are_made_anew(world: World) -> None:
    world.there = [5, 7]
    first = world.epochs.next(Bound())
    world.report(first)
    world.there = [6, 7]
    second = world.epochs.next(first)
    world.report(second)
    with pytest.raises(OutdatedStatesError):
        world.epochs.next(first)


def test_a_watermark_that_ran_ahead_is_put_back_in_a_batch_of_its_own_epoch(world: World) -> None:
    world.there = [5, 7]
    first = world.epochs.next(Bound())
    world.report(first, watermark=30)
    ahead = world.reports[f"{SCOPE}.1"]
    world.reports[f"{SCOPE}.1"] = replace(ahead, watermark=10**12, believed=30)
    world.put_back["trades"] = WatermarkRecord("trades", 90)
    second = world.epochs.next(first)
    assert (second.epoch, second.ends) == (EPOCH + 1, first.ends)
    assert (second.lowered, second.newest) == (((1, 90),), {ONE: 30, OTHER: 90})
    assert Bound.of(second.plain()) == second
    world.report(second, watermark=90, believed=None)
    assert world.epochs.next(second) == second
