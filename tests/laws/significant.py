"""``significance=`` on boxes of a random network, and what the oracle knows of it.

What a box emits depends on what it has emitted before, so the oracle does not compute it. It takes
what was emitted, checks that each result is within its thresholds of the exact one, and computes
the boxes below from it.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from errata import Network
from errata.processors.compile.compiler import compile_network
from tests.laws.loops import Iterate
from tests.laws.oracle import Content, Tuple

NUMBERS = ("int", "long", "float", "double", "decimal")
THRESHOLDS: Mapping[str, Sequence[Any]] = {
    **{kind: [0, 2.5, 40, 10**6, 10**6, "30%", "100%", "1000%"] for kind in NUMBERS},
    "timestamp-millis": [0, 5, "1s", "1000d"],
}
UNITS_MS = {"s": 1_000, "d": 86_400_000}
SLACK = Fraction(1, 10**6)
"""A distance of doubles is rounded, and so is an average of decimals."""


@dataclass(frozen=True)
class Emitted:
    """What a box emits that keeps revisions back.

    Args:
        name: Name of its arc.
        exact: The arc of its exact results.
        thresholds: By field, as declared.
        time: The field of the event time, which is always exact.
    """

    name: str
    exact: str
    thresholds: Mapping[str, Any]
    time: str

    def joined(self, found: Mapping[str, Content]) -> Content:
        """Return its content if nothing was kept back."""
        return found[self.exact]

    def is_near(self, emitted: Tuple, exact: Tuple) -> bool:
        """Whether an emitted result is within all its thresholds of the exact one."""
        return all(
            _is_near(emitted[name], value, self.thresholds.get(name, 0))
            for name, value in exact.items()
            if name == self.time or not name.startswith("__")
        )

    def far(self, emitted: Content, exact: Content) -> Iterator[str]:
        """Yield the results that are not within their thresholds."""
        for identity in emitted.keys() | exact.keys():
            one, other = emitted.get(identity), exact.get(identity)
            if one is None or other is None or not self.is_near(one, other):
                yield f"{identity} was emitted as {one}, and is {other}"


def beyond(
    bounds: Mapping[str, Any], emitted: Content, exact: Content, shown: Iterable[str]
) -> Iterator[str]:
    """Yield the tuples that are further off than an arc's bounds say.

    Bounds that hold only for values of one sign are passed over.

    Args:
        bounds: By field that may be inexact, with ``absolute``, ``share`` and ``one_sign``.
        emitted: The content of the arc.
        exact: What it would be if no box kept revisions back.
        shown: The fields of the arc.
    """
    if emitted.keys() != exact.keys():
        yield f"has the tuples {sorted(emitted, key=str)}, not {sorted(exact, key=str)}"
        return
    for identity, t in emitted.items():
        for name in shown:
            bound, one, other = bounds.get(name, ()), t[name], exact[identity].get(name, t[name])
            if bound is None or one == other or (one != one and other != other):
                continue
            if bound and bound.one_sign:
                continue
            if not bound or not _is_near(one, other, bound):
                yield f"{identity}: {name} is {one}, not within {bound} of {other}"


def _is_near(emitted: Any, exact: Any, threshold: Any) -> bool:
    if emitted is None or exact is None or isinstance(exact, str | bool | bytes):
        return bool(emitted == exact)
    if emitted == exact or (emitted != emitted and exact != exact):
        return True
    try:
        distance, size = abs(Fraction(exact) - Fraction(emitted)), abs(Fraction(emitted))
    except (ValueError, OverflowError, TypeError):  # NaN, infinity, a date
        return False
    if isinstance(threshold, str) and threshold[-1] in UNITS_MS:
        return distance <= Fraction(threshold[:-1]) * UNITS_MS[threshold[-1]]
    if isinstance(threshold, tuple):
        limit = threshold.absolute + threshold.share * size  # type: ignore[attr-defined]
    elif isinstance(threshold, str):
        limit = size * Fraction(threshold[:-1]) / 100
    else:
        limit = Fraction(threshold)
    return distance <= limit * (1 + SLACK) + (SLACK if threshold else 0)


def keep_back(
    net: Network, boxes: Sequence[Any], agree: Iterable[tuple[str, str]], *, keep: int, seed: int
) -> list[Any]:
    """Give some boxes of a network ``significance=``; return the oracle's boxes for it.

    Arcs that must have the same revisions get the same thresholds.

    Args:
        net: The network; changed.
        boxes: The oracle's boxes.
        agree: Pairs of arcs that must have the same revisions.
        keep: The `keep` of these boxes.
        seed: Decides which boxes, and the thresholds.
    """
    dice = random.Random(f"significance {seed}")
    topology = compile_network(net).topology
    first = {other: one for one, other in agree}
    chosen: dict[str, dict[str, Any]] = {}
    made = list[Any]()
    for box in boxes:
        leader = first.get(box.name, box.name)
        if leader not in chosen:
            chosen[leader] = _thresholds(topology.arcs[leader], dice)
        thresholds = chosen[leader]
        if not thresholds or box.name not in net.declarations or isinstance(box, Iterate):
            made.append(box)
            continue
        net.declarations[box.name] = replace(
            net.declarations[box.name], significance=thresholds, keep=keep
        )
        exact = f"{box.name}-exact"
        time = topology.arcs[box.name].event_time
        made += [replace(box, name=exact), Emitted(box.name, exact, thresholds, time)]
    return made


def _thresholds(arc: Any, dice: random.Random) -> dict[str, Any]:
    fixed = {*arc.identity, arc.event_time, *arc.partition_by}
    free = [
        name
        for name in arc.visible
        if name not in fixed and arc.fields[name].required.kind in THRESHOLDS
    ]
    if not free or dice.random() < 0.4:
        return {}
    names = free if dice.random() < 0.6 else dice.sample(free, dice.randint(1, len(free)))
    return {name: dice.choice(THRESHOLDS[arc.fields[name].required.kind]) for name in names}
