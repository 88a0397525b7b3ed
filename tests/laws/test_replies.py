"""A box without replies emits nothing, and the audit detects a false reply."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import polars as pl
import pytest

from errata.processors.boxes.replay import ReplayQuery
from errata.processors.tasks.replay_client import Fetch, Gathered
from errata.processors.tasks.scope_task import ScopeTask
from errata.processors.wire import replay
from errata.processors.wire.replay import Reply, Requester, pack, unpack
from errata.schemas.fields import physical
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from tests.laws.audit import Audit
from tests.laws.networks import apart
from tests.laws.replies import small_parts
from tests.laws.simulation import KilledError, Simulation

DEATHS = (1, 2, 4)
"""After which part of an answer a task dies."""

Change = Callable[[pl.DataFrame], pl.DataFrame]


class Meddler(MemoryCluster):
    """A cluster that changes the replies of sweepers to one scope.

    Args:
        scope: The scope that gets the replies.
        change: Changes the tuples of a reply; None: the reply is lost.
    """

    def __init__(self, scope: str, change: Change | None) -> None:
        super().__init__()
        self.topic, self.change, self.changed = f"tape.{scope}.replay", change, 0

    def send(self, topic: str, *, partition: int, key: bytes | None, value: bytes | None) -> None:
        if topic != self.topic:
            super().send(topic, partition=partition, key=key, value=value)
        elif self.change is not None:
            super().send(topic, partition=partition, key=key, value=self._changed(value or b""))

    def _changed(self, value: bytes) -> bytes:
        reply = replay.decode_reply(value)
        if reply is None or self.change is None or reply.refused is not None:
            return value
        tuples = unpack(reply.tuples)
        changed = self.change(tuples)
        self.changed += not changed.equals(tuples)
        false = replace(reply, tuples=pack(changed))
        return replay.encode(false, schema_id=int.from_bytes(value[1:5], "big"))


def left_out(tuples: pl.DataFrame) -> pl.DataFrame:
    return tuples[1:]


def wrong(tuples: pl.DataFrame) -> pl.DataFrame:
    name = "__rows" if "__rows" in tuples.columns else "size"
    return tuples.with_columns(pl.col(name) + 1)


def run(scope: str, change: Change | None) -> tuple[Audit, Meddler]:
    meddler = Meddler(scope, change)
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(
            apart(kept=True),
            seed=4,
            folder=Path(folder),
            ticks=16,
            cluster=meddler,
            faults=False,
            beside=0,
        )
        try:
            simulation.run()
            return Audit(simulation), meddler
        finally:
            simulation.close()


@pytest.mark.parametrize(("scope", "arc"), [("a", "up"), ("b", "down")])
def test_a_box_whose_replies_are_lost_revises_nothing_and_never_completes(scope, arc):
    audit, meddler = run(scope, None)
    revised = [r for part in audit.revisions[arc] for r in part if r["before"] is not None]
    assert revised == []
    stuck = {finding.split(" ")[0] for finding in audit.found["Progress"]}
    assert stuck == {f"{scope}.{partition}" for partition in range(2)}
    asked = "tape.scaled.requests" if arc == "up" else "tape.down.requests"
    assert any(meddler.end(TopicPartition(asked, partition)) for partition in range(2))


@contextmanager
def requested(*, blocks: int) -> Iterator[tuple[Fetch, Callable[..., None]]]:
    """A task waits for an answer to its first request; gives the wait, and what sends a block."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(apart(kept=True), seed=4, folder=Path(folder), beside=0)
        task = next(t for p in simulation.processes for t in p.tasks if t.name == "a.0")
        assert isinstance(task, ScopeTask)
        ranges = pl.DataFrame({"from_ms": [0], "to_ms": [9]})
        waiting = task.replays.fetch(
            [ReplayQuery("scaled", 5, ranges)], task="a.0", attempt=1, epoch=5
        )
        next(waiting)
        fields = simulation.plan.topology.arcs["scaled"].fields

        def reply(answer: int, block: int, *, rows: int, **covers: int) -> None:
            tuples = pack(pl.DataFrame(schema=physical(fields)).clear(rows))
            requester = Requester("a.0", attempt=1, epoch=5)
            content = Reply(requester, 1, answer, block, blocks, None, tuples, **covers)
            value = replay.encode(content, schema_id=1)
            simulation.cluster.send("tape.a.replay", partition=0, key=None, value=value)

        yield waiting, reply
        simulation.close()


def test_blocks_of_two_answers_never_make_one():
    with requested(blocks=2) as (waiting, reply):
        reply(1, 0, rows=1)
        reply(2, 1, rows=10)
        assert next(waiting) is False
        reply(2, 0, rows=100)
        with pytest.raises(StopIteration) as stop:
            next(waiting)
        assert stop.value.value[0].height == 110


def test_an_answer_whose_middle_block_is_lost_is_never_complete():
    with requested(blocks=3) as (waiting, reply):
        for answer in range(3):  # it is sent again, and the block is lost again
            reply(answer, 0, rows=1)
            reply(answer, 2, rows=3)
            reply(answer, 2, rows=3)
            assert next(waiting) is False
        reply(1, 1, rows=2, covered=2)  # more than was requested
        assert next(waiting) is False
        reply(1, 1, rows=2)
        with pytest.raises(StopIteration) as stop:
            next(waiting)
        assert stop.value.value[0].height == 6


class DyingAfterPart(Simulation):
    """A simulation in which a task dies each time that it has a certain part of an answer.

    Args:
        part: The number of the part, among all parts that do not end an answer.
    """

    def __init__(self, folder: Path, *, seed: int, part: int, beside: float) -> None:
        super().__init__(
            apart(kept=True), seed=seed, folder=folder, ticks=24, faults=False, beside=beside
        )
        self.part, self.parts = part, 0

    def taken(self, gathered: Gathered) -> None:
        """A task has taken a part of an answer."""
        self.parts += not gathered.is_whole
        if self.parts == self.part and not gathered.is_whole:
            raise KilledError


def died_after(part: int, seed: int, *, beside: float, seen: Counter[str]) -> bool:
    """Run a scenario; return whether a task had as many parts, and died."""
    with tempfile.TemporaryDirectory() as folder, small_parts(seen):
        simulation = DyingAfterPart(Path(folder), seed=seed, part=part, beside=beside)
        counted = Gathered.add

        def dying(self, *args):
            counted(self, *args)
            simulation.taken(self)

        with mock.patch.object(Gathered, "add", dying):
            simulation.run()
        assert dict(Audit(simulation).found) == {}
        simulation.close()
    return simulation.seen["killed in a call"] > 0


@pytest.mark.parametrize("beside", [0, 1])
def test_a_task_may_die_after_any_part_of_an_answer(beside):
    seen, add = Counter(), Gathered.add
    for part in DEATHS:
        assert any(died_after(part, 4 + n, beside=beside, seen=seen) for n in range(10))
    assert Gathered.add is add
    assert seen["answers in parts"]
    assert seen["parts that a box takes"]


@pytest.mark.parametrize("change", [left_out, wrong])
@pytest.mark.parametrize("scope", ["a", "b"])
def test_the_audit_sees_a_false_reply(scope, change):
    audit, meddler = run(scope, change)
    assert meddler.changed > 0
    assert audit.found["L1"]
    assert audit.found["L5"]


def test_the_audit_finds_nothing_when_replies_are_true():
    audit, _ = run("a", lambda tuples: tuples)
    assert dict(audit.found) == {}
