"""The expected content of every arc, recomputed from scratch in plain Python, exactly.

It shares no code with the boxes: no Polars, and none of Errata's windows, aggregates or
expressions. A tuple is a dict, an arc's content a dict of tuples by identity.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.laws.rows import AT as AT
from tests.laws.rows import Content as Content
from tests.laws.rows import Counting as Counting
from tests.laws.rows import InOrder as InOrder
from tests.laws.rows import Lag as Lag
from tests.laws.rows import Tuple as Tuple
from tests.laws.windows import Windows, hopping

NEVER, FOREVER = -(2**62), 2**62
IDLE = FOREVER + 1


# -------------------------------------------------------------------------------- boxes


@dataclass(frozen=True)
class Where:
    """Passes the tuples for which a predicate is true."""

    name: str
    input: str
    predicate: Callable[[Tuple], bool]

    def content(self, tuples: Content, wm: int) -> Content:
        return {identity: t for identity, t in tuples.items() if self.predicate(t)}


@dataclass(frozen=True)
class Map:
    """Adds or replaces fields; a tuple without an event time is left out."""

    name: str
    input: str
    fields: Mapping[str, Callable[[Tuple], Any]]

    def content(self, tuples: Content, wm: int) -> Content:
        made = {
            identity: t | {name: make(t) for name, make in self.fields.items()}
            for identity, t in tuples.items()
        }
        return {identity: t for identity, t in made.items() if t.get("at", 0) is not None}


@dataclass(frozen=True)
class Aggregate:
    """Windows by group; results come once the watermark has passed their end.

    Args:
        name: Name of its arc.
        input: Name of its input arc.
        by: Group fields.
        size: Windows are [k * slide, k * slide + size).
        slide: The distance of their starts.
        results: Result functions by name.
        time: Returns a tuple's event time.
        windows: Returns other windows: those that hold some of the event times of a group.
        on_update: Whether results don't wait for the watermark.
        is_whole: Whether there is only one window, whose bounds are not fields.
    """

    name: str
    input: str
    by: tuple[str, ...]
    size: int
    slide: int
    results: Mapping[str, Callable[[list[Tuple]], Any]]
    time: Callable[[Tuple], int] = lambda t: t["at"]
    windows: Windows | None = None
    on_update: bool = False
    is_whole: bool = False

    def content(self, tuples: Content, wm: int) -> Content:
        groups: dict[tuple[Any, ...], list[Tuple]] = defaultdict(list)
        for t in tuples.values():
            groups[tuple(t[name] for name in self.by)].append(t)
        windows = self.windows or hopping(self.size, self.slide)
        return dict(
            self._result(group, start, end, members)
            for group, members in groups.items()
            for start, end in windows({self.time(t) for t in members})
            if end <= wm or self.on_update
        )

    def _result(
        self, group: tuple[Any, ...], start: int, end: int, members: list[Tuple]
    ) -> tuple[tuple[Any, ...], Tuple]:
        inside = [t for t in members if start <= self.time(t) < end]
        hidden = "__" if self.is_whole else ""
        found = dict(zip(self.by, group, strict=True))
        found |= {f"{hidden}window_start": start, f"{hidden}window_end": end}
        found |= {"__rows": len(inside)}
        found |= {name: result(inside) for name, result in self.results.items()}
        return group if group and self.is_whole else (*group, start), found


@dataclass(frozen=True)
class Distinct:
    """Each combination of values of some fields once, at the time of its earliest tuple.

    Args:
        name: Name of its arc.
        input: Name of its input arc.
        by: The fields.
        time: The field of the event time.
    """

    name: str
    input: str
    by: tuple[str, ...]
    time: str = "at"

    def content(self, tuples: Content, wm: int) -> Content:
        made: Content = {}
        for t in tuples.values():
            values = tuple(t[name] for name in self.by)
            earliest = min(t[self.time], made.get(values, t)[self.time])
            made[values] = dict(zip(self.by, values, strict=True)) | {self.time: earliest}
        return made


@dataclass(frozen=True)
class Union:
    """All tuples of several arcs; with a tag for the arc if their identities may be equal."""

    name: str
    inputs: tuple[str, ...]
    tag: str | None = None

    def united(self, found: Mapping[str, Content]) -> Content:
        return {
            (identity if self.tag is None else (*identity, name)): t
            | ({} if self.tag is None else {self.tag: name})
            for name in self.inputs
            for identity, t in found[name].items()
        }


@dataclass(frozen=True)
class Join:
    """Pairs of tuples that are equal in some fields, none of them null.

    Args:
        name: Name of its arc.
        inputs: The left and the right arc.
        on: The fields.
        is_left: Whether left tuples without a match are kept.
        identities: The identity fields of both sides.
        times: The event-time fields of both sides.
        results: Result functions by name, of both tuples.
    """

    name: str
    inputs: tuple[str, str]
    on: tuple[str, ...]
    is_left: bool
    identities: tuple[tuple[str, ...], tuple[str, ...]]
    times: tuple[str, str]
    results: Mapping[str, Callable[[Tuple, Tuple], Any]]

    def joined(self, found: Mapping[str, Content]) -> Content:
        right: dict[tuple[Any, ...], list[Tuple]] = defaultdict(list)
        for t in found[self.inputs[1]].values():
            right[tuple(t[name] for name in self.on)].append(t)
        made: Content = {}
        for t in found[self.inputs[0]].values():
            key = tuple(t[name] for name in self.on)
            met = [] if None in key else right[key]
            for other in met or ([defaultdict(lambda: None)] if self.is_left else []):
                pair = self._pair(t, other)
                rest = [
                    t[name]
                    for t, own in zip((t, other), self.identities, strict=True)
                    for name in own
                    if name not in self.on
                ]
                made[(*key, *rest)] = pair
        return made

    def _pair(self, left: Tuple, right: Tuple) -> Tuple:
        found = {name: left[name] for name in self.on}
        for alias, t, own in zip("lr", (left, right), self.identities, strict=True):
            found |= {carried(alias, name): t[name] for name in own if name not in self.on}
        one, other = self.times
        shift = int(one not in AT) if one == other else 0
        both = [(left, one), (right, other)]
        known = [t[name] - (name not in AT) for t, name in both if t[name] is not None]
        found[one if one == other else "__at"] = max(known) + shift
        return found | {name: result(left, right) for name, result in self.results.items()}


def carried(alias: str, name: str) -> str:
    """Return the name of a side's field in a pair."""
    return f"__{alias}_{name[2:]}" if name.startswith("__") else f"{alias}_{name}"


def closed_at(result: Tuple) -> int:
    """Return the event time of an aggregate's result."""
    return int(result["window_end"]) - 1


Box = Where | Map | Aggregate | Distinct | Union | Join | Lag | Counting
"""Those of `tests.laws.loops` also belong to it."""


def contents(
    boxes: Iterable[Box],
    sources: Mapping[str, Content],
    wm: int,
    *,
    emitted: Mapping[str, Content] | None = None,
) -> dict[str, Content]:
    """Return the content of every arc, given the content of the sources' arcs and wm(e).

    Args:
        boxes: The boxes.
        sources: The content of the sources' arcs.
        wm: The watermark.
        emitted: By arc of a box that keeps revisions back: its content.
    """
    found = dict(sources)
    for box in boxes:
        if emitted is not None and box.name in emitted:
            found[box.name] = emitted[box.name]
        elif isinstance(box, Union):
            found[box.name] = box.united(found)
        elif isinstance(box, Where | Map | Aggregate | Distinct | InOrder):
            found[box.name] = box.content(found[box.input], wm)
        else:
            found[box.name] = box.joined(found)
    return found


# -------------------------------------------------------------------------------- results


def _values(name: str, tuples: list[Tuple]) -> list[Any]:
    return [t[name] for t in tuples if t[name] is not None]


def count(name: str | None = None) -> Callable[[list[Tuple]], int]:
    return lambda tuples: len(tuples if name is None else _values(name, tuples))


def total(name: str) -> Callable[[list[Tuple]], Any]:
    return lambda tuples: sum(values) if (values := _values(name, tuples)) else None


def largest(name: str) -> Callable[[list[Tuple]], Any]:
    return lambda tuples: max(_values(name, tuples), default=None)


def mean(name: str, *, places: int | None = None) -> Callable[[list[Tuple]], Any]:
    """Return the average: the nearest double, or for decimals rounded half away from zero."""

    def of(tuples: list[Tuple]) -> Any:
        values = _values(name, tuples)
        if not values:
            return None
        exact = sum(map(Fraction, values)) / len(values)
        if places is None:
            return float(exact)
        scaled = abs(exact) * 10**places
        whole = int(scaled + Fraction(1, 2))
        return Decimal(whole if exact >= 0 else -whole).scaleb(-places)

    return of


# -------------------------------------------------------------------------------- watermark


def watermark(
    pairs: Iterable[Mapping[int, int]], epoch: int, *, lowered: Iterable[int] = ()
) -> int:
    """Return wm(epoch) from the (epoch, watermark) pairs of every partition.

    It is the minimum over the partitions, without idle ones, and falls only in the epochs in which
    one was put back (`lowered`).
    """
    known = list(pairs)
    highest, since = NEVER, max((e for e in lowered if e <= epoch), default=NEVER)
    for moment in sorted({e for own in known for e in own if since <= e <= epoch}):
        now = [max(((e, w) for e, w in own.items() if e <= moment), default=(0, NEVER))[1]
               for own in known]  # fmt: skip
        highest = max(highest, min((w for w in now if w != IDLE), default=NEVER))
    return highest
