"""A scenario in which a network gains boxes while it runs; they are filled from the history."""

import json
from dataclasses import replace

import polars as pl

from errata import hopping, tumbling
from errata.deploy.versions import deployed_part, next_version
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import Deployed, added
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.takeover import Fill, Filled, NewArc, contents
from errata.schemas import revisions as frames
from errata.spark_jobs.backfill import FillWriter, schema_ids
from tests.laws import oracle
from tests.laws.networks import KEEP, PARTITIONS, SUMS, SUMS_ORACLE, Shape, front, shape_of
from tests.laws.networks import _sums as sums
from tests.laws.switching import Switching, other_counts
from tests.steps import ended


class Growing(Switching):
    """A network gains boxes in the middle of the tape.

    Args:
        shape: The final network.
        old: The plan that it begins with.
        count: The partitions that its sources' arcs get.
        more: Other arguments of `Simulation`.
    """

    def __init__(self, shape: Shape, old: CompiledPlan, *, count: int, **more) -> None:
        super().__init__(replace(shape, plan=old), count=count, **more)
        self.grown, self.once = shape.plan, set[str]()

    def next(self, old: CompiledPlan) -> CompiledPlan:
        return next_version(old, other_counts(self.grown, self.count))

    def fill(self, was: Shared, new: CompiledPlan) -> Fill:
        """Return a function that recomputes all arcs from connection points, and writes one."""

        def fill(arc: NewArc) -> Filled:
            made = dict[str, pl.DataFrame]()
            for name in [*was.plan.topology.sources, *new.boxes]:
                if name in was.plan.kept_ms:
                    fields = new.topology.arcs[name].fields
                    there = ended(contents(was, name, fields=fields))
                    made[name] = frames.side(there, frames.AFTER, list(fields))
                else:
                    above = [made[input] for input in new.boxes[name].inputs]
                    wm = arc.watermarks.get(name, 0)
                    made[name] = new.boxes[name].recompute(*above, wm=wm)
            writer = FillWriter(new, arc, schema_ids(was.plan, new, was.registry))
            writer.fence(self.cluster)
            tuples, half = made[arc.name], made[arc.name].height // 2
            parts = [tuples[:half], tuples[half:]]
            found = [writer.write(self.cluster, [part], number=n) for n, part in enumerate(parts)]
            ends = {p: max(f.ends.get(p, 0) for f in found) for f in found for p in f.ends}
            self.seen["filled"] += tuples.height
            self.seen["filled again"] += arc.name in self.once
            self.once.add(arc.name)
            return Filled(sum(f.tuples for f in found), ends)

        return fill


def growing(*, kept: bool) -> tuple[Shape, CompiledPlan]:
    """A network with one aggregate that gains others: in its scope, in others, in new ones."""
    net, scaled = front(kept=kept)
    up = sums(scaled, "up", scope="a", mode="upstream", keep=KEEP)
    few = replace(net, declarations=dict(net.declarations))
    sums(scaled, "down", scope="b", mode="downstream", keep=KEEP)
    scaled.aggregate(
        "desks", by=["desk"], window=hopping(12, every=8), mode="resident", partitions=3,
        fields=SUMS,
    )  # fmt: skip
    shown = up.map("shown", fields={"double": "n * 2"})
    shown.aggregate(
        "all", by=["product"], window=tumbling(16), emit="on_update", keep=KEEP,
        fields={"n": "sum(double)"},
    )  # fmt: skip
    boxes = (
        *(replace(SUMS_ORACLE, name=name) for name in ("up", "down")),
        replace(SUMS_ORACLE, name="desks", by=("desk",)),
        oracle.Map("shown", "up", {"double": lambda t: t["n"] * 2}),
        oracle.Aggregate(
            "all", "shown", ("product",), 16, 16, {"n": oracle.total("double")},
            time=oracle.closed_at, on_update=True,
        ),
    )  # fmt: skip
    whole, old = shape_of(net, boxes, ("up", "down")), shape_of(few, boxes).plan
    found = Deployed(old.deployment, json.loads(json.dumps(old.describe())))
    assert added(whole.plan, found) == ["down", "desks", "shown", "all"]
    part = compile_network(deployed_part(net, found)).placed(
        dict.fromkeys(old.topology.sources, PARTITIONS)
    )
    assert part.fingerprint == old.fingerprint
    return whole, old
