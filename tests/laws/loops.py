"""Lookups and loops as the oracle knows them, in plain Python."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
        fails: By box of the body that calls a function, its input, and what it raises for.
    """

    name: str
    input: str
    kept: tuple[str, ...]
    body: tuple[Any, ...]
    gives: str
    rounds: int
    fails: Mapping[str, tuple[str, Callable[[Tuple], bool]]] = field(default_factory=dict)

    def joined(self, found: Mapping[str, Content]) -> Content:
        *_, now, then = self._turns(found)
        return {identity: t for identity, t in now.items() if then.get(identity) == t}

    def left_out(self, found: Mapping[str, Content]) -> dict[tuple[str, tuple[Any, ...]], Tuple]:
        """Return what does not get through, by the box of the body that raises, or "" if none does.

        What does not settle is told as it entered, or as it was when it came up in the last rounds.
        """
        made: dict[tuple[str, tuple[Any, ...]], Tuple] = {}
        turns = self._turns(found)
        for turn in turns[:-1]:
            inside = contents(self.body, {**found, self.name: turn}, FOREVER)
            for box, (above, raises) in self.fails.items():
                for identity, t in inside[above].items():
                    if raises(t):
                        made.setdefault((box, identity), t)
        raised = {identity for _, identity in made}
        first, now, then = turns[0], *turns[-2:]
        for identity in (now.keys() | then.keys()) - raised:
            if now.get(identity) != then.get(identity):
                known = next(turn for turn in (first, now, then) if identity in turn)
                made["", identity] = known[identity]
        return made

    def _turns(self, found: Mapping[str, Content]) -> list[Content]:
        """Return what goes round after each round, and what would after one more."""
        now = {identity: shown(t, self.kept) for identity, t in found[self.input].items()}
        turns = [now]
        for _ in range(self.rounds + 1):
            turns.append(self._next(turns[-1], found))
        return turns

    def _next(self, now: Content, found: Mapping[str, Content]) -> Content:
        made = contents(self.body, {**found, self.name: now}, FOREVER)[self.gives]
        return {identity: shown(t, self.kept) for identity, t in made.items()}
