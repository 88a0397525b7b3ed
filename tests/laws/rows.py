"""The oracle's boxes that depend on the order of tuples."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Tuple = dict[str, Any]
Content = dict[tuple[Any, ...], Tuple]

AT = ("at", "__at")
"""Event times that are plain fields; the others are ends of windows."""


@dataclass(frozen=True, kw_only=True)
class InOrder:
    """The groups of an arc.

    Args:
        name: Name of the box's arc.
        input: Name of its input arc.
        by: Group fields.
        identity: Identity fields of the input.
        time: The field of its event time.
    """

    name: str
    input: str
    by: tuple[str, ...]
    identity: tuple[str, ...]
    time: str

    def at(self, t: Tuple) -> int:
        return int(t[self.time]) - (self.time not in AT)

    def groups(self, tuples: Content) -> Iterator[tuple[Tuple, list[Tuple]]]:
        """Yield the fields of each group, and its tuples by event time, then by identity."""
        found: dict[tuple[Any, ...], list[Tuple]] = defaultdict(list)
        for t in sorted(tuples.values(), key=self._place):
            found[tuple(t[name] for name in self.by)].append(t)
        for group, line in found.items():
            yield dict(zip(self.by, group, strict=True)), line

    def _place(self, t: Tuple) -> list[Any]:
        """Return the sort key of a tuple; null sorts below all values."""
        named = (() if t[name] is None else (t[name],) for name in self.identity)
        return [self.at(t), *named]


@dataclass(frozen=True, kw_only=True)
class Lag(InOrder):
    """Adds to each tuple fields of the one that is `offset` before it in its group."""

    offset: int
    results: Mapping[str, Callable[[Tuple], Any]]

    def content(self, tuples: Content, wm: int) -> Content:
        made: Content = {}
        for _, line in self.groups(tuples):
            for place, t in enumerate(line):
                other = line[place - self.offset] if place >= self.offset else None
                own = (*self.identity, self.time)
                found = {name: t[name] for name in t if name[:2] != "__" or name in own}
                found |= {n: other and make(other) for n, make in self.results.items()}
                made[tuple(t[name] for name in self.identity)] = found
        return made


@dataclass(frozen=True, kw_only=True)
class Counting(InOrder):
    """Windows of a number of tuples of a group.

    Args:
        rows: How many tuples they hold.
        every: The distance of their starts in tuples; None: one ends with each tuple.
        results: Result functions by name.
        on_update: Whether results wait neither for the watermark nor for full windows.
    """

    rows: int
    every: int | None
    results: Mapping[str, Callable[[list[Tuple]], Any]]
    on_update: bool

    def content(self, tuples: Content, wm: int) -> Content:
        made: Content = {}
        for group, line in self.groups(tuples):
            for named, inside in self._windows(group, line):
                is_full = self.every is None or len(inside) == self.rows
                if self.on_update or (is_full and self.at(inside[-1]) < wm):
                    found = {name: result(inside) for name, result in self.results.items()}
                    times = {} if self.every is None else {"__at": self.at(inside[-1])}
                    key = tuple(v for name, v in named.items() if name not in self._unnamed)
                    made[key] = named | times | {"__rows": len(inside)} | found
        return made

    @property
    def _unnamed(self) -> tuple[str, ...]:
        """Fields of a window that are not part of its identity."""
        if self.every is not None:
            return ("window_end",)
        return () if self.time in (*self.by, *self.identity) else (self.time,)

    def _windows(self, group: Tuple, line: list[Tuple]) -> Iterator[tuple[Tuple, list[Tuple]]]:
        """Yield the identity fields of each window, and the tuples in it."""
        if self.every is None:
            for place, t in enumerate(line):
                named = group | {name: t[name] for name in (*self.identity, self.time)}
                yield named, line[max(0, place + 1 - self.rows) : place + 1]
            return
        for start in range(0, len(line), self.every):
            end = start + self.rows
            yield group | {"window_start": start, "window_end": end}, line[start:end]
