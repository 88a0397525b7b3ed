"""Random times and summaries, and what may appear where by plain search."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from errata.processors.progress.timestamp import Advance, Epoch


class Pair(NamedTuple):
    """A time of two parts, ordered only partially: both parts must be before the other's."""

    first: Any
    second: Epoch

    def less_equal(self, other: Pair) -> bool:
        return self.first.less_equal(other.first) and self.second.less_equal(other.second)


@dataclass(frozen=True)
class Both:
    """A path that changes each part of a pair by a summary of its own."""

    first: Any
    second: Advance

    @property
    def advances(self) -> bool:
        return self.first.advances or self.second.advances

    def results_in(self, time: Pair) -> Pair:
        return Pair(self.first.results_in(time.first), self.second.results_in(time.second))


LOWEST: list[Any] = [Epoch(0)]
for _ in range(2):
    LOWEST.append(Pair(LOWEST[-1], Epoch(0)))


Place = Hashable
Step = Callable[[Any], Any]


def random_summary(rng: Random, depth: int) -> Any:
    """A summary of times with so many parts and one."""
    by = Advance(rng.choice([0, 0, 1, 2]))
    return Both(random_summary(rng, depth - 1), by) if depth else by


def later(rng: Random, time: Any) -> Any:
    """The time itself or a later one."""
    if isinstance(time, Epoch):
        return Epoch(time + rng.choice([0, 0, 0, 1, 2]))
    return Pair(later(rng, time.first), later(rng, time.second))


epochs = st.builds(Epoch, st.integers(0, 6))
advances = st.builds(Advance, st.integers(0, 3))


def times_of(depth: int) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any] = epochs
    for _ in range(depth):
        found = st.builds(Pair, found, epochs)
    return found


def minimal(times: Iterable[Any]) -> set[Any]:
    """The times that no other one is before."""
    known = set(times)
    return {time for time in known if not any(t != time and t.less_equal(time) for t in known)}


def appear(
    steps: Mapping[Place, Sequence[tuple[Place, Step]]], stamps: Iterable[tuple[Place, Any]]
) -> dict[Place, list[Any]]:
    """The times that may appear at each place, but for those that come after another there."""
    found: dict[Place, list[Any]] = {}
    work = list(stamps)
    while work:
        place, time = work.pop()
        known = found.setdefault(place, [])
        if any(t.less_equal(time) for t in known):
            continue
        known.append(time)
        work += [(after, step(time)) for after, step in steps[place]]
    return {place: list(minimal(known)) for place, known in found.items()}


def all_that_appear(
    steps: Mapping[Place, Sequence[tuple[Place, Step]]],
    stamps: Iterable[tuple[Place, Any]],
    horizon: Any,
) -> dict[Place, set[Any]]:
    """Every time up to a horizon that may appear at each place."""
    found: dict[Place, set[Any]] = {}
    work = list(stamps)
    while work:
        place, time = work.pop()
        if not time.less_equal(horizon) or time in found.setdefault(place, set()):
            continue
        found[place].add(time)
        work += [(after, step(time)) for after, step in steps[place]]
    return found
