"""The oracle's lookups and loops, in plain Python."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.laws.oracle import FOREVER, Content, Tuple, contents


@dataclass(frozen=True)
class Lookup:
    """Joins each tuple with the one that it refers to; it keeps its identity.

    Args:
        name: Name of its arc.
        inputs: The left and the right arc.
        on: Pairs of fields, of the left and the right arc.
        is_left: Whether tuples that refer to none are kept.
        kept: The hidden fields that are kept: those of the identity and the event time.
        results: Result functions by name, of both tuples.
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
    """Return a tuple without hidden fields, except the kept ones."""
    return {name: v for name, v in t.items() if not name.startswith("__") or name in kept}


@dataclass(frozen=True)
class Iterate:
    """The fixpoint of a body of boxes over an arc, for tuples that reach one.

    Args:
        name: Name of its arc, and of the arc that is fed back.
        input: The arc that it starts with.
        kept: The hidden fields that are kept: those of the identity and the event time.
        body: The boxes of a round.
        gives: Name of the box whose output is fed back.
        rounds: The number of rounds.
        fails: For each box of the body that calls a function: its input, and for what it raises.
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
        """Return the left-out tuples by identity and the box that raises for them, or "" for none.

        A tuple that does not settle has its value at entry, or its first value in the last rounds.
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
        """Return the content after each round, and after one more."""
        now = {identity: shown(t, self.kept) for identity, t in found[self.input].items()}
        turns = [now]
        for _ in range(self.rounds + 1):
            turns.append(self._next(turns[-1], found))
        return turns

    def _next(self, now: Content, found: Mapping[str, Content]) -> Content:
        made = contents(self.body, {**found, self.name: now}, FOREVER)[self.gives]
        return {identity: shown(t, self.kept) for identity, t in made.items()}
