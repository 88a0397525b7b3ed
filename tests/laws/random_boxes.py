"""Random stateless boxes: a filter, a map, a route whose outputs meet again."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from errata import Network, Stream, python
from tests.laws import oracle
from tests.laws.oracle import Box, Tuple
from tests.laws.random_results import Drawn, Kinds, draw_predicate
from tests.laws.random_times import Times
from tests.laws.tape import PLAIN, WIDE

INEXACT = ("double", "rough")
"""Kinds whose values are never joined on."""

FIELDS = PLAIN | WIDE
"""The fields of every source."""


def kind(declared: str) -> str:
    """Return the kind of a declared type, by its name in `tests.laws.random_results`."""
    plain = declared.removesuffix("?").removesuffix("-millis")
    return f"decimal:{plain[-2]}" if plain.startswith("decimal") else plain


def less(size: int | None, lots: int | None) -> int | None:
    """Return a difference; null if one side is, as it must be when both may be null."""
    return None if size is None or lots is None else size - lots


def _or_null(name: str, make: Callable[[Tuple], Any]) -> Callable[[Tuple], Any]:
    return lambda t: None if t[name] is None else make(t)


MAPS: Mapping[str, Drawn] = {
    "value": Drawn("amount * 2", _or_null("amount", lambda t: t["amount"] * 2), "decimal:2"),
    "half": Drawn("rate / 2", lambda t: t["rate"] / 2, "double"),
    "less": Drawn(
        python(less, "long?", "size", "lots"), lambda t: less(t["size"], t["lots"]), "long"
    ),
    "product": Drawn("coalesce(desk, 'none')", lambda t: t["desk"] or "none", "string"),
    "desk": Drawn(
        "if(flag, desk, product)", lambda t: t["desk"] if t["flag"] else t["product"], "string"
    ),
    "lots": Drawn("lots + 1", lambda t: t["lots"] + 1, "int"),
    "size": Drawn("coalesce(size, 3)", lambda t: 3 if t["size"] is None else t["size"], "long"),
    "flag": Drawn("lots > 0", lambda t: t["lots"] > 0, "boolean"),
    "day": Drawn(
        "date_add(day, lots)", _or_null("day", lambda t: t["day"] + timedelta(t["lots"])), "date"
    ),
}
"""Fields that maps set; a name that no source has is a new field."""


@dataclass(frozen=True)
class Flow:
    """An arc that is being declared.

    Args:
        stream: The arc.
        kinds: Kinds by field name.
        identity: The identity fields.
        time: The field of its event time.
    """

    stream: Stream
    kinds: Kinds
    identity: tuple[str, ...]
    time: str = "at"

    @property
    def name(self) -> str:
        return self.stream.name

    def to(self, stream: Stream) -> "Flow":
        """Return another arc with the same kind of tuples."""
        return replace(self, stream=stream)


class Declaring:
    """Declares random boxes, and the oracle's boxes for them.

    Args:
        dice: The random generator.
        times: The event times of the network.
    """

    def __init__(self, dice: random.Random, times: Times) -> None:
        self.dice, self.times = dice, times
        self.net, self.boxes = Network("tape"), list[Box]()

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def fresh(self, stem: str) -> str:
        """Return a unique name."""
        return f"{stem}{len(self.boxes)}"

    def kept(self, share: float) -> int | None:
        """Return a keep, or None."""
        return self.times.keep if self.chance(share) else None

    def scope(self, name: str) -> str | None:
        """Return a separate scope, or None."""
        return f"of_{name}" if self.chance(0.35) else None

    def stateless(self, flow: Flow) -> Flow:
        """Append a stateless box, or a route and a union, to an arc."""
        return self.dice.choice([self.where, self.map, self.map, self.route])(flow)

    def where(self, flow: Flow) -> Flow:
        where, name = draw_predicate(self.dice, flow.kinds, self.times.unit), self.fresh("where")
        stream = flow.stream.where(name, where.text, scope=self.scope(name), keep=self.kept(0.2))
        self.boxes.append(oracle.Where(name, flow.name, where.means))
        return flow.to(stream)

    def map(self, flow: Flow, *, alike: bool = False) -> Flow:
        """Add or replace fields; with `alike` the set of fields stays the same."""
        chosen = self.dice.sample(list(MAPS), self.dice.choice([1, 1, 2]))
        made = {name: MAPS[name] for name in chosen if not alike or name in FIELDS}
        if self.chance(0.3) or not made:
            made["at"] = self._other_time()
        name = self.fresh("map")
        stream = flow.stream.map(
            name,
            fields={field: drawn.text for field, drawn in made.items()},
            keep=self.kept(1 if "at" in made else 0.2),
            partitions=None if alike else self.dice.choice([None, None, None, 1, 3]),
            scope=self.scope(name),
        )
        means = {field: drawn.means for field, drawn in made.items()}
        self.boxes.append(oracle.Map(name, flow.name, means))
        kinds = {**flow.kinds, **{field: drawn.kind for field, drawn in made.items()}}
        return replace(flow, stream=stream, kinds=kinds)

    def _other_time(self) -> Drawn:
        """Return a later or an earlier event time; sometimes only some tuples get one."""
        unit, shift = self.times.unit, self.dice.choice([-7, 5, 13]) * self.times.unit
        forms: list[tuple[str, Callable[[Tuple], int | None]]] = [
            (f"{shift}L", lambda t: shift),
            (f"pmod(lots, 5) * {unit}L", lambda t: t["lots"] % 5 * unit),
            (f"if(size > 0, {shift}L, null)", lambda t: shift if (t["size"] or 0) > 0 else None),
        ]
        text, means = self.dice.choice(forms)

        def moved(t: Tuple) -> int | None:
            change = means(t)
            return None if change is None else t["at"] + change

        return Drawn(f"timestamp_millis(unix_millis(at) + {text})", moved, "timestamp")

    def route(self, flow: Flow) -> Flow:
        """Route tuples to two or three arcs, one of which may be mapped, and unite them."""
        found = [draw_predicate(self.dice, flow.kinds, self.times.unit) for _ in range(2)]
        if self.chance(0.5):
            found.append(Drawn("rest", lambda t: True, "boolean"))
        stem = self.fresh("route")
        outputs = {f"{stem}_{place}": drawn.text for place, drawn in enumerate(found)}
        streams = flow.stream.route(fields=outputs, keep=self.kept(0.1), scope=self.scope(stem))
        for place, name in enumerate(outputs):
            passes = partial(_passes, tests=[drawn.means for drawn in found[: place + 1]])
            self.boxes.append(oracle.Where(name, flow.name, passes))
        first, *others = map(flow.to, streams)
        return self.union(self.map(first, alike=True) if self.chance(0.5) else first, *others)

    def join(self, one: Flow, other: Flow) -> Flow | None:
        """Join two arcs on one or two common fields; None if there is none."""
        dice, name = self.dice, self.fresh("join")
        shared = [n for n in one.kinds if other.kinds.get(n) == one.kinds[n] not in INEXACT]
        if not shared:
            return None
        both = [n for n in one.identity if n in shared and n in other.identity]
        on = both if both and self.chance(0.4) else dice.sample(shared, min(2, len(shared)))
        on = on if self.chance(0.5) else on[:1]
        is_left = self.chance(0.4)
        drawn = {
            f"{name}{alias}{number}": (alias, dice.choice(list(flow.kinds)))
            for alias, flow in (("l", one), ("r", other))
            for number in range(dice.choice([1, 2]))
        }
        numbers = [n for n, kind in one.kinds.items() if kind in ("int", "long")]
        drawn[f"{name}n"] = ("l", dice.choice(numbers))
        stream = self.net.join(
            name,
            {"l": one.stream, "r": other.stream},
            on=on,
            how="left" if is_left else "inner",
            keep=self.kept(0.3),
            scope=self.scope(name),
            partitions=dice.choice([None, None, None, 1, 3]),
            fields={field: f"{alias}.{of}" for field, (alias, of) in drawn.items()},
        )
        means = {
            field: partial(_of_side, alias=alias, name=of) for field, (alias, of) in drawn.items()
        }
        sides, times = (one, other), (one.time, other.time)
        self.boxes.append(
            oracle.Join(
                name,
                (one.name, other.name),
                tuple(on),
                is_left,
                (one.identity, other.identity),
                times,
                means,
            )
        )
        kinds = {field: one.kinds[field] for field in on}
        rest = {
            oracle.carried(alias, field): flow.kinds.get(field, "timestamp")
            for alias, flow in zip("lr", sides, strict=True)
            for field in flow.identity
            if field not in on
        }
        kinds |= {field: kind for field, kind in rest.items() if not field.startswith("__")}
        time = one.time if one.time == other.time else "__at"
        if not time.startswith("__"):
            kinds[time] = "timestamp"
        for field, (alias, of) in drawn.items():
            kinds[field] = (one if alias == "l" else other).kinds[of]
        return Flow(stream, kinds, (*on, *rest), time)

    def lag(self, flow: Flow, groups: tuple[str, ...]) -> Flow:
        """Add to each tuple a field of an earlier one in its group."""
        dice, name = self.dice, self.fresh("lag")
        chosen = dice.sample(list(flow.kinds), min(dice.choice([1, 2]), len(flow.kinds)))
        drawn = {f"{name}of{number}": of for number, of in enumerate(chosen)}
        offset = dice.choice([1, 1, 2, 4])
        stream = flow.stream.lag(
            name,
            by=groups,
            offset=offset,
            keep=self.kept(0.3),
            scope=self.scope(name),
            partitions=dice.choice([None, None, None, 1, 3]),
            fields=drawn,
        )
        self.boxes.append(
            oracle.Lag(
                name=name,
                input=flow.name,
                by=groups,
                identity=flow.identity,
                time=flow.time,
                offset=offset,
                results={field: partial(_field, name=of) for field, of in drawn.items()},
            )
        )
        kinds = {**flow.kinds, **{field: flow.kinds[of] for field, of in drawn.items()}}
        return replace(flow, stream=stream, kinds=kinds)

    def distinct(self, flow: Flow, fields: tuple[str, ...]) -> Flow:
        """Keep each combination of values once; the arc itself if there are no fields."""
        if not fields:
            return flow
        name = self.fresh("distinct")
        stream = flow.stream.distinct(
            name,
            by=fields,
            keep=self.kept(0.3),
            scope=self.scope(name),
            partitions=self.dice.choice([None, None, None, 1, 3]),
        )
        self.boxes.append(oracle.Distinct(name, flow.name, fields, flow.time))
        kinds = {field: flow.kinds[field] for field in fields}
        if not flow.time.startswith("__"):
            kinds[flow.time] = "timestamp"
        return Flow(stream, kinds, fields, flow.time)

    def union(self, *flows: Flow, tag: str | None = None) -> Flow:
        """Unite arcs with the same fields; a tag is part of the identity."""
        name = self.fresh("union")
        stream = self.net.union(name, *(flow.stream for flow in flows), keep=self.kept(0.3))
        self.boxes.append(oracle.Union(name, tuple(flow.name for flow in flows), tag=tag))
        united = flows[0].to(stream)
        if tag is None:
            return united
        kinds = {**united.kinds, tag: "string"}
        return replace(united, kinds=kinds, identity=(*united.identity, tag))


def _field(t: Tuple, *, name: str) -> Any:
    return t[name]


def _of_side(left: Tuple, right: Tuple, *, alias: str, name: str) -> Any:
    return (left if alias == "l" else right)[name]


def _passes(t: Tuple, *, tests: list[Callable[[Tuple], bool]]) -> bool:
    *earlier, own = tests
    return own(t) and not any(test(t) for test in earlier)
