"""Lookups and loops as the oracle knows them, in plain Python."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.laws.oracle import FOREVER, Content, Tuple, contents


@dataclass(frozen=True)
class Lookup:
    """Each tuple with the one that it names elsewhere; it stays the same tuple.

    Args:
        name: Of its arc.
        inputs: The left and the right arc.
        on: Pairs of fields, the left one's and the right one's.
        is_left: Whether tuples that name none stay.
        kept: The hidden fields that stay: of the identity and the event time.
        results: By name, of both tuples.
    """

    name: str
    inputs: tuple[str, str]
    on: tuple[tuple[str, str], ...]
    is_left: bool
    kept: tuple[str, ...]
    results: Mapping[str, Callable[[Tuple, Tuple], Any]]

    def joined(self, found: Mapping[str, Content]) -> Content:
        named = {tuple(t[its] for _, its in self.on): t for t in found[self.inputs[1]].values()}
        made: Content = {}
        for identity, t in found[self.inputs[0]].items():
            key = tuple(t[own] for own, _ in self.on)
            other = None if None in key else named.get(key)
            if other is None and not self.is_left:
                continue
            other = defaultdict(lambda: None) if other is None else other
            results = {name: result(t, other) for name, result in self.results.items()}
            made[identity] = shown(t, self.kept) | results
        return made


def shown(t: Tuple, kept: tuple[str, ...]) -> Tuple:
    """Return a tuple without its hidden fields, but some."""
    return {name: v for name, v in t.items() if not name.startswith("__") or name in kept}


@dataclass(frozen=True)
class Iterate:
    """What a body of boxes makes of an arc, round after round, as far as that comes to an end.

    Args:
        name: Of its arc, and of what goes round.
        input: The arc that it starts with.
        kept: The hidden fields that stay: of the identity and the event time.
        body: The boxes of a round.
        gives: Name of the one that gives what goes round.
        rounds: How many there are.
    """

    name: str
    input: str
    kept: tuple[str, ...]
    body: tuple[Any, ...]
    gives: str
    rounds: int

    def joined(self, found: Mapping[str, Content]) -> Content:
        now = {identity: shown(t, self.kept) for identity, t in found[self.input].items()}
        for _ in range(self.rounds):
            now = self._next(now, found)
        then = self._next(now, found)
        return {identity: t for identity, t in now.items() if then.get(identity) == t}

    def _next(self, now: Content, found: Mapping[str, Content]) -> Content:
        made = contents(self.body, {**found, self.name: now}, FOREVER)[self.gives]
        return {identity: shown(t, self.kept) for identity, t in made.items()}
