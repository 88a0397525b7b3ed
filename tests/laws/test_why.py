"""`errata why`: the causes that it names are those without which the result would be another."""

import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from errata.client import why as module
from errata.client.reading import Tail
from errata.client.why import Explanation, Why
from errata.observe.network_progress import current
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.boxes.counting import Counting
from errata.processors.boxes.matching import with_identities
from errata.processors.envelopes.texts import parse
from errata.processors.windows.row_windows import HoppingRows
from errata.schemas import revisions as frames
from errata.topics.registry import SchemaRegistry
from tests.laws.audit import Audit
from tests.laws.oracle import Content, contents, watermark
from tests.laws.random_networks import random_shape
from tests.laws.seeds import seeds
from tests.laws.simulation import Simulation
from tests.laws.spark_engine import few_of_each

SEEDS = seeds(8, 24)
KINDS = [{}, {"joins": True}, {"rows": True, "joins": True}, {"loops": True}, {"placed": True}]
ASKED = 10
"""How many tuples of a network are explained."""
Key = tuple[Any, ...]
Held = dict[str, Content]


class Moments(Audit):
    """Remembers what the sources held after each epoch, and the watermark."""

    def _begin(self) -> None:
        self.held: dict[int, tuple[Held, int]] = {}

    def _saw(self, epoch: int) -> None:
        sources = {name: dict(self.contents[name]) for name in self.plan.topology.sources}
        self.held[epoch] = sources, watermark(self.pairs, epoch, lowered=self.lowered)

    def sources(self, epochs: Mapping[str, int]) -> Held:
        """Return what each source held after an epoch; nothing, if it does not matter."""
        found: Held = {name: {} for name in self.plan.topology.sources}
        for name, epoch in epochs.items():
            known = max((e for e in self.held if e <= epoch), default=None)
            found[name] = {} if known is None else self.held[known][0][name]
        return found

    def value(self, arc: str, identity: Key, sources: Held, wm: int) -> Any:
        """Return the visible fields of a result, as the oracle computes it; None if it is none."""
        found = contents(self.simulation.shape.boxes, sources, wm)[arc].get(identity)
        return found and {name: found[name] for name in self.plan.topology.arcs[arc].visible}


class Judge:
    """Compares explanations with what the oracle computes.

    Args:
        audit: The audit of a finished simulation.
    """

    def __init__(self, audit: Moments) -> None:
        self.audit, self.plan, self.seen = audit, audit.plan, Counter[str]()
        self.arcs, cluster = self.plan.topology.arcs, audit.simulation.cluster
        self.progress, self.registry = current(cluster, self.plan), SchemaRegistry(cluster)

    def history(self, arc: str, wanted: pl.DataFrame | None) -> pl.DataFrame:
        """Return the revisions of an arc."""
        codec = ArcCodec(self.arcs[arc], self.plan.deployment.topic(arc), self.registry)
        reading = Tail(self.progress, codec, from_beginning=True)
        nothing = codec.empty.with_columns(partition=pl.lit(0, pl.Int32))
        found = pl.concat([nothing, *reading.upto_now()])
        reading.close()
        return found if wanted is None else with_identities(codec.arc, found, wanted)

    def judge(self, arc: str, identity: Key) -> None:
        """Judge what is told of each revision of a tuple."""
        kind = self.arcs[arc]
        wanted = pl.DataFrame(
            parse(
                pl.Series(name, [None if value is None else str(value)], dtype=pl.String),
                kind.fields[name],
            )
            for name, value in zip(kind.identity, identity, strict=True)
        )
        why = Why(self.plan, arc, wanted, self.history, watermark=self.progress.watermark_now)
        for told in why.explanations(why.revisions()):
            assert told.is_recomputed, (arc, identity, told.revision.to_dicts())
            epoch = told.revision["epoch"][0]
            wm = self.audit.held[epoch][1]
            before, after = (self.audit.sources(epochs) for epochs in (told.since, told.upto))
            named, wanted_causes = self._named(told), self._causes(arc, identity, before, after, wm)
            assert named or told.closed, (arc, identity, epoch)
            if told.are_enough:
                self._judge_enough(arc, identity, named, before, after, wm)
                named = set()
            left = wanted_causes - named
            assert named <= wanted_causes, (arc, identity, epoch, named - wanted_causes)
            # a tuple may also matter since another result would come into the group without it
            assert not left or (self._is_deep(arc) and module.FEW == 0), (
                arc,
                identity,
                epoch,
                left,
            )
            self.seen["causes"] += len(named)
            self.seen["closed"] += told.closed is not None
            then = max((e for e in self.audit.held if e < epoch), default=epoch)
            self._judge_inputs(arc, identity, told, after, [wm])
            self._judge_inputs(arc, identity, told, before, [wm, self.audit.held[then][1]])

    def _causes(
        self, arc: str, identity: Key, before: Held, after: Held, wm: int
    ) -> set[tuple[str, Key]]:
        """Return the changes of sources without which a result would be another."""
        value, found = self.audit.value(arc, identity, after, wm), set()
        for source in before:
            for key in before[source].keys() | after[source].keys():
                was = before[source].get(key)
                if was != after[source].get(key):
                    undone = {k: v for k, v in after[source].items() if k != key}
                    undone |= {} if was is None else {key: was}
                    changed = {**after, source: undone}
                    if self.audit.value(arc, identity, changed, wm) != value:
                        found.add((source, key))
        return found

    def _is_deep(self, arc: str) -> bool:
        """Whether an arc comes from boxes that group, join or order results of others."""
        above = [self.plan.boxes[name] for name in self.plan.topology.boxes_above(arc)]
        return sum(not box.is_stateless for box in above) > 1

    def _judge_enough(
        self,
        arc: str,
        identity: Key,
        named: set[tuple[str, Key]],
        before: Held,
        after: Held,
        wm: int,
    ) -> None:
        """Check that some changes suffice for a result together."""
        some = {source: dict(content) for source, content in before.items()}
        for source, key in named:
            some[source].pop(key, None)
            if key in after[source]:
                some[source][key] = after[source][key]
        value = self.audit.value(arc, identity, after, wm)
        assert self.audit.value(arc, identity, some, wm) == value, (arc, identity, named)
        self.seen["enough"] += 1

    def _named(self, told: Explanation) -> set[tuple[str, Key]]:
        return {
            (source, key)
            for source, frame in told.causes.items()
            for key in frames.identities(frame, self.arcs[source].identity).rows()
        }

    def _judge_inputs(
        self, arc: str, identity: Key, told: Explanation, sources: Held, watermarks: list[int]
    ) -> None:
        """Check that the tuples that a result is made of give the same result alone."""
        if self._is_deep(arc):
            return  # other results of the box above would be others, too
        above = [self.plan.boxes[name] for name in self.plan.topology.boxes_above(arc)]
        if any(isinstance(b, Counting) and isinstance(b.window, HoppingRows) for b in above):
            return  # other tuples have other numbers there
        place = 1 if len(watermarks) == 1 else 0
        if told.revision["op"][0] == (frames.DELETE if place else frames.INSERT):
            return
        alone: Held = {source: {} for source in sources}
        for source, sides in told.inputs.items():
            for key in sides[place].select(self.arcs[source].identity).rows():
                alone[source][key] = sources[source][key]
        for wm in watermarks:
            value = self.audit.value(arc, identity, sources, wm)
            if value is not None:
                break
        assert value is not None
        assert self.audit.value(arc, identity, alone, wm) == value, (arc, identity, place)
        self.seen["made of some"] += 1
        left_out = sum(map(len, sources.values())) - sum(map(len, alone.values()))
        self.seen["tuples that a result is not made of"] += left_out


def judge(seed: int, **boxes: bool) -> Counter[str]:
    """Judge what is told of some results of the network of a seed; return what was seen."""
    shape, dice = random_shape(seed, **boxes), random.Random(f"why {seed}")
    with tempfile.TemporaryDirectory() as folder, few_of_each():
        simulation = Simulation(shape, seed=seed, folder=Path(folder), ticks=16)
        simulation.clean = lambda **_: 0  # nothing is gone
        simulation._trim = lambda: None
        try:
            simulation.run()
            judged = Judge(Moments(simulation))
            revised = Counter(
                (arc, judged.audit._identity(arc, revision))
                for arc in shape.plan.topology.topics
                if arc in shape.plan.boxes and not shape.plan.topology.arcs[arc].exchange
                for part in judged.audit.revisions[arc]
                for revision in part
            )
            often = [each for each, count in revised.items() if count > 1] or [*revised]
            judged.seen["asked"] = len(often)
            for arc, identity in dice.sample(often, min(ASKED, len(often))):
                judged.judge(arc, identity)
        finally:
            simulation.close()
    return judged.seen


@pytest.mark.parametrize("seed", SEEDS)
def test_causes_are_what_changes_a_result_in_a_random_network(seed, monkeypatch):
    if seed % 2:  # only revisions of tuples on which the result depends are left out
        monkeypatch.setattr(module, "FEW", 0)
    seen = judge(seed, **KINDS[seed % len(KINDS)])
    assert seen["causes"] or not seen["asked"]
    assert seen["tuples that a result is not made of"] or not seen["made of some"]
