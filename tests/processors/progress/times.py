"""Random times and summaries, and what may appear where by plain search."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from errata.processors.progress.summary import IDENTITY, Advance, ProductSummary
from errata.processors.progress.timestamp import Epoch, Product

LOWEST: list[Any] = [Epoch(0)]
IDENTITIES: list[Any] = [IDENTITY]
for _ in range(3):
    LOWEST.append(Product(LOWEST[-1], Epoch(0)))
    IDENTITIES.append(ProductSummary(IDENTITIES[-1], IDENTITY))

Place = Hashable
Step = Callable[[Any], Any]


def random_summary(rng: Random, depth: int, *, by: int | None = None) -> Any:
    """A summary at a depth; the last part adds `by`, if given."""
    grown = rng.choice([0, 0, 1, 2]) if by is None else by
    bounded = {"below": grown + rng.randint(1, 6)} if rng.random() < 0.2 else {}
    inner = Advance(grown, **bounded)
    return ProductSummary(random_summary(rng, depth - 1), inner) if depth else inner


def later(rng: Random, time: Any) -> Any:
    """The time itself or a later one."""
    if isinstance(time, Epoch):
        return Epoch(time + rng.choice([0, 0, 0, 1, 2]))
    return Product(later(rng, time.outer), later(rng, time.inner))


epochs = st.builds(Epoch, st.integers(0, 6))
times = st.recursive(epochs, lambda inner: st.builds(Product, inner, epochs), max_leaves=3)


@st.composite
def advances(draw: st.DrawFn) -> Advance:
    by = draw(st.integers(0, 3))
    below = draw(st.one_of(st.just(float("inf")), st.integers(by + 1, by + 6)))
    return Advance(by, below)


def summaries(depth: int) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any] = advances()
    for _ in range(depth):
        found = st.builds(ProductSummary, found, advances())
    return found


def times_of(depth: int) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any] = epochs
    for _ in range(depth):
        found = st.builds(Product, found, epochs)
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
        for after, step in steps[place]:
            result = step(time)
            if result is not None:
                work.append((after, result))
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
        work += [(after, step(time)) for after, step in steps[place] if step(time) is not None]
    return found
