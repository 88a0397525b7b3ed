"""A compiled plan: a plan with boxes that can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from errata.processors.boxes.base import Box
from errata.processors.boxes.bounds import EXACT, Bounds
from errata.processors.boxes.modes import Choice
from errata.processors.boxes.replay import ReplayPath
from errata.processors.plan.placement import Placement, Requested
from errata.processors.plan.plan import Plan
from errata.processors.plan.topology import Scope
from errata.processors.windows.time_windows import FOREVER_MS


@dataclass(frozen=True)
class CompiledPlan(Plan):
    """A plan whose boxes can run: the result of the compiler.

    Args:
        boxes: By name, in topological order.
        paths: By name of a box that requests history: how its inputs are replayed.
        choices: By name of a box that has a mode: the mode, and why.
        kept_ms: By connection point: how much event time it keeps, at least what its sources keep.
        requested: The partitions that exchanges request.
    """

    boxes: dict[str, Box]
    paths: dict[str, ReplayPath]
    choices: dict[str, Choice]
    kept_ms: dict[str, int]
    requested: Requested

    def placed(
        self,
        topic_partitions: Mapping[str, int],
        *,
        sink_partitions: Mapping[str, int] | None = None,
    ) -> Self:
        """Return the plan with all numbers of partitions: see `Placement.of`.

        Raises:
            NetworkError: If arcs that are read together have different numbers of partitions.
        """
        placement = Placement.of(self.topology, self.requested, topic_partitions, sink_partitions)
        return replace(self, placement=placement)

    def alone(self) -> Self:
        """Return the plan with one partition of everything, so that each scope has one task."""
        sources = {
            name: replace(each, partitions=1) for name, each in self.topology.sources.items()
        }
        topology = replace(self.topology, sources=sources)
        requested = dict.fromkeys(self.requested, 1)
        plan = replace(self, placement=Placement(topology), requested=requested)
        return plan.placed(dict.fromkeys(sources, 1))

    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """By arc: how far what it holds may be from what it would hold without ``significance=``.

        Bound sources count as exact.
        """
        known = dict.fromkeys(self.topology.sources, EXACT)
        for name, box in self.boxes.items():
            known[name] = box.bounds(*(known[arc] for arc in box.inputs))
        return known

    def replayed_points(self) -> list[str]:
        """Return the connection points that some box replays; they need sweepers.

        Of the boxes on Spark, only an aggregate may: for windows beyond its horizon.
        """
        return self._replayed_by(self.boxes)

    def replayed_points_of(self, scope: Scope) -> list[str]:
        """Return the connection points that the boxes of a scope replay."""
        return self._replayed_by(scope.boxes)

    def fetched_by(self, box: str) -> list[str]:
        """Return the connection points from which a box fetches results.

        In downstream mode that is the one that holds them, and that of its results which are kept
        back.
        """
        if self.boxes[box].reads_back:
            return [box]
        results = self.choices[box].results if box in self.choices else None
        if results is None:
            return []
        kept = self.boxes[results].kept_back
        return [results] if kept is None else [results, kept.name]

    def replayed_everywhere(self, box: str) -> list[str]:
        """Return the connection points of which a box replays all partitions."""
        path = self.paths.get(box)
        return [a.arc.name for a in path.anchors if a.everywhere] if path else []

    def requested_by(self, arc: str) -> tuple[str, ...]:
        """Return the fields whose values every box requests that replays a connection point."""
        fields = [
            a.pushed for path in self.paths.values() for a in path.anchors if a.arc.name == arc
        ]
        common = set(fields[0]).intersection(*fields) if fields else set()
        return tuple(name for name in self.topology.arcs[arc].fields if name in common)

    def radius_ms(self, arc: str) -> int:
        """Return the radius of an anchor: the largest that any box needs; 0 if none replays it."""
        return max((path.radius_ms(arc) for path in self.paths.values()), default=0)

    @cached_property
    def reach_ms(self) -> dict[str, int]:
        """How old a tuple may be that a revision still needs, by connection point.

        That is its age behind the watermarks of the sources `Topology.sources_beside` it.
        Connection points are left out in which it may have any age: a box without a bound in event
        time writes them, or replays them.
        """
        return {name: reach for name in self.kept_ms if (reach := self._reach_ms(name)) is not None}

    def _reach_ms(self, arc: str) -> int | None:
        topology = self.topology
        above = (self.boxes[name].extent_ms for name in topology.boxes_above(arc))
        if arc in topology.moved or max(above, default=0) >= FOREVER_MS:
            return None
        beside = (self.kept_ms.get(source, 0) for source in topology.sources_beside(arc))
        reach_ms = max(self.kept_ms[arc], *beside) + self.radius_ms(arc)
        return reach_ms if reach_ms < FOREVER_MS else None

    @cached_property
    def trimmed(self) -> frozenset[str]:
        """The connection points whose records are deleted by event time, not by age.

        A job on Spark neither deletes records, nor reports the offset from which it reads. Of a
        bound source the newest event time is not known.
        """
        topology = self.topology
        scopes = [scope for scope in topology.scopes.values() if scope.on_spark]
        by_age = {arc for scope in scopes for arc in (*scope.inputs, *scope.outputs)}
        bound = topology.bound.keys()
        by_age |= {arc for arc, sources in topology.sources_of.items() if bound & {*sources}}
        return frozenset(self.reach_ms.keys() - by_age)

    def extents_ms(self, arc: str) -> int:
        """Return how far an arc's event times may be after those of the sources' tuples."""
        return sum(self.boxes[name].extent_ms for name in self.topology.boxes_above(arc))

    def ahead_ms(self, arc: str) -> int | None:
        """Return how far an arc's event times may be after the time of writing; None: any far."""
        sources = (self.topology.sources[name] for name in self.topology.sources_of[arc])
        ahead_ms = [source.max_ahead_ms for source in sources]
        known_ms = [ms for ms in ahead_ms if ms is not None]
        if len(known_ms) < len(ahead_ms):
            return None
        return max(known_ms) + self.extents_ms(arc)

    def _replayed_by(self, boxes: Iterable[str]) -> list[str]:
        replayed = set[str]()
        for box in boxes:
            if box in self.topology.spark and not self.boxes[box].is_grouped_on_spark:
                continue
            if box in self.paths:
                replayed |= {anchor.arc.name for anchor in self.paths[box].anchors}
            replayed |= {*self.fetched_by(box)}
        return [arc for arc in self.topology.arcs if arc in replayed]
