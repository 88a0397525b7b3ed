"""What every arc must hold, recomputed from scratch in plain Python and exact arithmetic.

It shares no code with the boxes: no polars, no windows, aggregates or expressions of ours. A tuple
is a dict, an arc's content a dict of tuples by identity.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

Tuple = dict[str, Any]
Content = dict[tuple[Any, ...], Tuple]

NEVER, FOREVER = -(2**62), 2**62
IDLE = FOREVER + 1


# -------------------------------------------------------------------------------- boxes


@dataclass(frozen=True)
class Where:
    """Passes the tuples that a predicate is true of."""

    name: str
    input: str
    predicate: Callable[[Tuple], bool]

    def content(self, tuples: Content, wm: int) -> Content:
        return {identity: t for identity, t in tuples.items() if self.predicate(t)}


@dataclass(frozen=True)
class Map:
    """Adds fields, or replaces them."""

    name: str
    input: str
    fields: Mapping[str, Callable[[Tuple], Any]]

    def content(self, tuples: Content, wm: int) -> Content:
        return {
            identity: t | {name: make(t) for name, make in self.fields.items()}
            for identity, t in tuples.items()
        }


@dataclass(frozen=True)
class Aggregate:
    """Windows [k * slide, k * slide + size) by group; results once the watermark passed the end."""

    name: str
    input: str
    by: tuple[str, ...]
    size: int
    slide: int
    results: Mapping[str, Callable[[list[Tuple]], Any]]
    time: Callable[[Tuple], int] = lambda t: t["at"]

    def content(self, tuples: Content, wm: int) -> Content:
        windows: dict[tuple[Any, ...], list[Tuple]] = defaultdict(list)
        for t in tuples.values():
            group = tuple(t[name] for name in self.by)
            start = self.time(t) // self.slide * self.slide
            while start + self.size > self.time(t):
                if start + self.size <= wm:
                    windows[*group, start].append(t)
                start -= self.slide
        return {
            key: dict(zip((*self.by, "window_start"), key, strict=True))
            | {"window_end": key[-1] + self.size, "__rows": len(inside)}
            | {name: result(inside) for name, result in self.results.items()}
            for key, inside in windows.items()
        }


@dataclass(frozen=True)
class Union:
    """All tuples of several arcs; with a tag that says which, where identities may be the same."""

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


def closed_at(result: Tuple) -> int:
    """Return the event time of an aggregate's result."""
    return int(result["window_end"]) - 1


Box = Where | Map | Aggregate | Union


def contents(boxes: Iterable[Box], sources: Mapping[str, Content], wm: int) -> dict[str, Content]:
    """Return what every arc holds, given what the sources' arcs hold and wm(e)."""
    found = dict(sources)
    for box in boxes:
        if isinstance(box, Union):
            found[box.name] = box.united(found)
        else:
            found[box.name] = box.content(found[box.input], wm)
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
    """Return the average: the nearest double or, of decimals, rounded half away from zero."""

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


def watermark(pairs: Iterable[Mapping[int, int]], epoch: int) -> int:
    """Return wm(epoch) from the (epoch, watermark) pairs of every partition.

    The minimum of what each had seen, idle ones left out, never falling.
    """
    known = list(pairs)
    highest = NEVER
    for moment in sorted({e for own in known for e in own if e <= epoch}):
        now = [max(((e, w) for e, w in own.items() if e <= moment), default=(0, NEVER))[1]
               for own in known]  # fmt: skip
        highest = max(highest, min((w for w in now if w != IDLE), default=NEVER))
    return highest


# -------------------------------------------------------------------------------- ingest


@dataclass
class Intake:
    """What one source partition's records make of its share of the arc.

    Args:
        keep: Event times further behind the newest one (less lateness) are refused.
        lateness: How far the watermark stays behind.
    """

    keep: int
    lateness: int
    held: dict[str, Tuple] = field(default_factory=dict)
    newest: int = NEVER
    refused: dict[int, str] = field(default_factory=dict)

    def take(self, records: Iterable[tuple[int, Any]]) -> None:
        """Take one epoch's (offset, record); a record is a line as a dict, or anything else."""
        oldest = self.newest - self.keep if self.newest > NEVER else NEVER
        at_first = dict(self.held)
        newest = NEVER
        for offset, line in records:
            reason = _fault(line) or self._judge(line, at_first, oldest)
            if reason is not None:
                self.refused[offset] = reason
                continue
            before, after = line.get("before"), line.get("after")
            if before is not None and (after is None or before["key"] != after["key"]):
                self.held.pop(before["key"], None)
            if after is not None:
                self.held[after["key"]] = after
                newest = max(newest, after["at"] - self.lateness)
        self.newest = max(self.newest, newest)

    def _judge(self, line: Any, at_first: dict[str, Tuple], oldest: int) -> str | None:
        before, after = line.get("before"), line.get("after")
        keys = {t["key"] for t in (before, after) if t is not None}
        old = [at_first[key]["at"] for key in keys if key in at_first]
        if after is not None:
            old.append(after["at"])
        if min(old, default=oldest) < oldest:
            return "older than keep"
        moves = len(keys) == 2
        if line["op"] != "insert" and not moves and not keys & self.held.keys():
            return "unknown identity"
        return None


def _fault(line: Any) -> str | None:
    if not isinstance(line, dict):
        return "undecodable"
    if line["op"] != "delete" and line["after"]["at"] is None:
        return "event time"
    return None
