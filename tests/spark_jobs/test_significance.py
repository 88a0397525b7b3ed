"""A box on Spark that keeps revisions back: what it keeps back is in its states."""

from typing import Any

import polars as pl

from errata import Network
from errata.processors.compile.compiler import compile_network
from errata.schemas import revisions as frames
from errata.schemas.fields import physical
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.partition_step import PartitionStep
from errata.spark_jobs.routing import TUPLES, Row, blocks_of
from tests.laws.spark_engine import Memory, States

FIELDS = {"key": "string", "at": "timestamp-millis", "n": "long"}


class World:
    """One partition of a map that doubles a number, and keeps revisions of less than ten back."""

    def __init__(self) -> None:
        net = Network("near", place="spark")
        trades = net.source(
            "trades", fields=FIELDS, identity=["key"], event_time="at", keep="1d",
            partition_by=["key"],
        )  # fmt: skip
        trades.map("twice", m="n * 2", keep="1d", significance={"n": 10, "m": 10})
        plan = compile_network(net).placed({"trades": 1})
        job = Job(
            plan, plan.topology.jobs["twice"], {}, {}, writers=1, attempts=(1,), done=(-1,),
        )  # fmt: skip
        (self.step,) = job.stateful
        self.states: States = {}
        self.held: dict[str, dict[str, Any]] = {}
        self.job, self.epoch = job, 0

    def revise(self, settles: int = 0, **numbers: int) -> dict[str, list[tuple[Any, ...]]]:
        """Process a batch; return by arc the op, key and result of each revision."""
        self.epoch += 1
        batch = Batch(self.epoch, self.epoch + 1, 0, 0, settles=settles)
        old = [self.held[key] for key in numbers if key in self.held]
        self.held |= {key: {"key": key, "at": 1, "n": n, "m": 2 * n} for key, n in numbers.items()}
        (exact,) = self.step.inputs  # the map itself runs where its input is read
        schema = physical(self.job.plan.topology.arcs[exact].fields)
        new = pl.DataFrame([self.held[key] for key in numbers], schema=schema)
        revisions = frames.net(
            pl.concat([_deletes(pl.DataFrame(old, schema=schema)), frames.inserts(new)]),
            ("key",),
            list(schema),
        )
        rows = [
            Row(0, TUPLES, number, block, exact)
            for number, block in enumerate(blocks_of(revisions))
        ]
        step = PartitionStep(self.job, self.step, 0, lambda name: Memory(self.states, name))
        run = step.run(batch, rows)
        try:
            next(run)
        except StopIteration as stop:
            (result,) = stop.value
        return {
            arc: [
                (row["op"], row["before.key"] or row["after.key"], row.get("after.m"))
                for row in written.iter_rows(named=True)
            ]
            for arc, written in result.written.items()
            if arc == "twice"
        }


def _deletes(tuples: pl.DataFrame) -> pl.DataFrame:
    there = pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True)
    return frames.between(tuples, there, tuples, ~there)


def test_small_revisions_add_up_and_settling_emits_what_is_left() -> None:
    world = World()
    assert world.revise(a=100, b=50) == {
        "twice": [(frames.INSERT, "a", 200), (frames.INSERT, "b", 100)]
    }
    assert world.revise(a=103) == {}  # within 10 of what was emitted
    assert world.revise(a=106) == {"twice": [(frames.REPLACE, "a", 212)]}  # 12 from 200
    assert world.revise(a=107, b=51) == {}
    settled = world.revise(settles=1)
    assert sorted(settled["twice"]) == [(frames.REPLACE, "a", 214), (frames.REPLACE, "b", 102)]
    assert world.revise(settles=2) == {}
