"""Random predicates, fields and results, as a user writes them and as the oracle has them.

Kinds are those of fields, of a decimal only with its scale, as ``decimal:2``; ``rough`` is a double
that is the nearest one to a result, and is never summed.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, NamedTuple

from tests.laws.oracle import Tuple, count, largest, mean, total
from tests.laws.results import (
    Order,
    around,
    bits,
    covariance,
    distinct,
    every,
    extreme_by,
    filtered,
    first,
    mode,
    most_common,
    percentile,
    smallest,
    some,
    top_k,
    variance,
    volatility,
)
from tests.laws.user_functions import Bits, Dot, Peak, SlowDot, SlowPeak

Kinds = Mapping[str, str]
WHOLE = ("int", "long")


class Drawn(NamedTuple):
    """A text, its meaning, the kind of its result, and whether it needs the whole content."""

    text: Any
    means: Callable[..., Any]
    kind: str
    is_whole: bool = False


@dataclass(frozen=True)
class Rows:
    """The fields that results are computed from.

    Args:
        kinds: Kinds by field name.
        order: The event time, then the identity.
        order_by: The order of ``first`` and ``last``, then the identity.
        groups: Fields that are the same for all tuples.
        unit: Times are multiples of this, in ms.
    """

    kinds: Kinds
    order: Order
    order_by: Order
    groups: tuple[str, ...]
    unit: int


def is_number(kind: str) -> bool:
    return kind in (*WHOLE, "double") or kind.startswith("decimal")


# -------------------------------------------------------------------------------- predicates


def draw_predicate(dice: random.Random, kinds: Kinds, unit: int) -> Drawn:
    """Return a predicate over some of the fields; where it is null it counts as false."""
    if dice.random() < 0.25:
        one, other = draw_predicate(dice, kinds, unit), draw_predicate(dice, kinds, unit)
        word, join = dice.choice([("and", all), ("or", any)])
        text = f"({one.text}) {word} ({other.text})"
        return Drawn(text, lambda t: join([one.means(t), other.means(t)]), "boolean")
    name = dice.choice(list(kinds))
    if dice.random() < 0.1:
        return Drawn(f"{name} is null", lambda t: t[name] is None, "boolean")
    text, test = dice.choice(_tests(kinds[name], unit))
    return Drawn(
        text.format(name), lambda t: t[name] is not None and bool(test(t[name])), "boolean"
    )


def _tests(kind: str, unit: int) -> list[tuple[str, Callable[[Any], Any]]]:
    if kind == "string":
        return [
            ("{} <> 'fig'", lambda v: v != "fig"),
            ("{} in ('x', 'tea', 'yam')", lambda v: v in ("x", "tea", "yam")),
        ]
    if kind == "boolean":
        return [("{}", lambda v: v), ("not {}", lambda v: not v)]
    if kind == "date":
        return [("{} >= date '2026-01-02'", lambda v: v >= date(2026, 1, 2))]
    if kind == "timestamp":
        text = f"pmod(unix_millis({{}}), {5 * unit}L) < {3 * unit}L"
        return [(text, lambda v: v % (5 * unit) < 3 * unit)]
    if kind in WHOLE:
        return [("{} >= 1", lambda v: v >= 1), ("{} % 2 = 0", lambda v: v % 2 == 0)]
    return [("{} >= 0.5", lambda v: v >= 0.5), ("{} < 9", lambda v: v < 9)]


# -------------------------------------------------------------------------------- results


def draw_results(dice: random.Random, rows: Rows, *, stem: str) -> dict[str, Drawn]:
    """Return two to five results by name; the first of them is a whole number."""
    found = {"n": Drawn("count(*)", count(), "long")}
    number, whole = dice.choice([1, 2, 3, 4]), dice.choice([0, 0, 0, 0.6])
    for place in range(number):
        draw = draw_whole if dice.random() < whole else draw_result
        found[f"{stem}{place}"] = draw(dice, rows)
    return found


def draw_result(dice: random.Random, rows: Rows) -> Drawn:
    """Return a call, a call with a filter, an expression around calls, or a user's function."""
    kind = dice.random()
    if kind < 0.15 and (drawn := _of_user(dice, rows)):
        return drawn
    if kind < 0.35:
        return dice.choice(_expressions(dice, rows))
    call = draw_call(dice, rows)
    return _filtered(dice, rows, call) if kind < 0.5 else call


def draw_call(dice: random.Random, rows: Rows) -> Drawn:
    """Return a call of any function on a matching field; each kind of field is equally likely."""
    free = {name: kind for name, kind in rows.kinds.items() if name not in rows.groups}
    kind = dice.choice(list(dict.fromkeys(free.values())))
    name = dice.choice([name for name in free if free[name] == kind])
    return dice.choice(_calls(dice, rows, name))


def _filtered(dice: random.Random, rows: Rows, call: Drawn) -> Drawn:
    where = draw_predicate(dice, rows.kinds, rows.unit)
    text, nulls = call.text.removesuffix(" ignore nulls"), " ignore nulls"
    text = f"{text} filter (where {where.text})" + nulls * call.text.endswith(nulls)
    return call._replace(text=text, means=filtered(where.means, call.means))


def _calls(dice: random.Random, rows: Rows, name: str) -> list[Drawn]:
    """Return the calls on a field; functions for any kind are rarer than those for its own kind."""
    kind, order = rows.kinds[name], rows.order_by
    other = dice.choice(list(rows.kinds))
    ignore = dice.random() < 0.5
    nulls = " ignore nulls" * ignore
    any_kind = [
        Drawn(f"count({name})", count(name), "long"),
        Drawn(f"min({name})", smallest(name), kind),
        Drawn(f"max({name})", largest(name), kind),
        Drawn(f"first({name}){nulls}", first(name, order, ignore_nulls=ignore), kind),
        Drawn(f"last({name}){nulls}", first(name, order, at=-1, ignore_nulls=ignore), kind),
        Drawn(f"min_by({name}, {other})", extreme_by(name, other, rows.order, largest=False), kind),
        Drawn(f"max_by({name}, {other})", extreme_by(name, other, rows.order, largest=True), kind),
    ]
    own: list[Drawn] = []
    if kind == "boolean":
        own = [
            Drawn(f"bool_and({name})", every(name), kind),
            Drawn(f"bool_or({name})", some(name), kind),
            Drawn(f"count_if({name})", filtered(lambda t: t[name], count()), "long"),
        ]
    if is_number(kind):
        _, _, scale = kind.partition(":")
        places = int(scale) + 4 if scale else None
        average = f"decimal:{places}" if scale else "rough"
        own = [
            Drawn(f"sum({name})", total(name), "long" if kind in WHOLE else kind),
            Drawn(f"avg({name})", mean(name, places=places), average),
        ]
        own *= 2  # to be as frequent as the four of the variance
        for called, sample, root in (
            ("var_samp", True, False),
            ("var_pop", False, False),
            ("stddev_samp", True, True),
            ("stddev_pop", False, True),
        ):
            means = variance(name, sample=sample, root=root, of_doubles=kind == "double")
            own.append(Drawn(f"{called}({name})", means, "rough"))
        pair = dice.choice([n for n, k in rows.kinds.items() if is_number(k)])
        of_doubles = "double" in (kind, rows.kinds[pair])
        for called in ("corr", "covar_samp", "covar_pop"):
            means = covariance(called, name, pair, of_doubles=of_doubles)
            own.append(Drawn(f"{called}({name}, {pair})", means, "rough"))
    return own if own and dice.random() < 0.6 else any_kind


def draw_whole(dice: random.Random, rows: Rows) -> Drawn:
    """Return a call of a function that needs the whole content, sometimes with a filter."""
    name, other = (dice.choice(list(rows.kinds)) for _ in range(2))
    kind = rows.kinds[name]
    found = [
        Drawn(f"count(distinct {name})", distinct(name), "long", True),
        Drawn(f"count(distinct {name}, {other})", distinct(name, other), "long", True),
        Drawn(f"mode({name})", mode(name), kind, True),
    ]
    if text_of := _json(kind):
        most = dice.choice([1, 2, 1000])
        for called, make in (("top_k", top_k), ("most_common", most_common)):
            means = make(name, most, text_of)
            found.append(Drawn(f"{called}({name}, {most})", means, "string", True))
    if is_number(kind):
        share = dice.choice(["0", "0.07", "0.5", "0.99", "1"])
        found += [
            Drawn(f"percentile({name}, {share})", percentile(name, Fraction(share)), "rough", True),
            Drawn(f"median({name})", percentile(name, Fraction(1, 2)), "rough", True),
        ]
        prices: list[tuple[str, Callable[[Tuple], Any]]] = [
            (name, lambda t: t[name]),
            (f"abs({name}) + 1", lambda t: None if t[name] is None else abs(t[name]) + 1),
        ]
        for text, price in prices:
            means = volatility(price, rows.order_by)
            found.append(Drawn(f"realised_volatility({text})", means, "rough", True))
    call = dice.choice(found)
    return _filtered(dice, rows, call) if dice.random() < 0.3 else call


def _json(kind: str) -> Callable[[Any], str] | None:
    """Return a function that writes a value as JSON; None if its form is not unique."""
    if kind in ("string", "date"):
        return lambda v: f'"{v}"'
    if kind in WHOLE or kind == "boolean":
        return lambda v: str(v).lower()
    _, _, scale = kind.partition(":")
    return (lambda v: f"{v:.{scale}f}") if scale else None


def _expressions(dice: random.Random, rows: Rows) -> list[Drawn]:
    """Return expressions around calls."""
    number = dice.choice([n for n, kind in rows.kinds.items() if kind in WHOLE])
    free = [name for name in rows.kinds if name not in rows.groups]
    counted = dice.choice(free)
    last = dice.choice(free)
    order = rows.order_by
    part = _filtered(dice, rows, Drawn(f"sum({number})", total(number), "long"))
    found = [
        Drawn(
            f"max({number}) - min({number})",
            around(lambda a, b: a - b, largest(number), smallest(number)),
            rows.kinds[number],
        ),
        Drawn(
            f"count(*) * 10 + count({counted})",
            around(lambda a, b: a * 10 + b, count(), count(counted)),
            "long",
        ),
        Drawn(
            f"case when count(*) > 2 then last({last}) end",
            lambda tuples: first(last, order, at=-1)(tuples) if len(tuples) > 2 else None,
            rows.kinds[last],
        ),
        Drawn(f"vwap(abs({number}) + 1, abs({number}))", _vwap(number), "rough"),
        Drawn(
            f"coalesce({part.text}, 0) - count(*)",
            lambda tuples: (part.means(tuples) or 0) - len(tuples),
            "long",
        ),
        Drawn(
            f"sum({number}) / count(*)",
            around(lambda a, b: a / b, total(number), count()),
            "rough",
        ),
    ]
    texts = [name for name in rows.groups if rows.kinds[name] == "string"]
    if texts:
        group = dice.choice(texts)
        means = around(lambda a, b: f"{a}:{b}", lambda tuples: tuples[0][group], count())
        found.append(Drawn(f"concat({group}, ':', count(*))", means, "string"))
    return found


def _vwap(name: str) -> Callable[[Sequence[Tuple]], float | None]:
    def of(tuples: Sequence[Tuple]) -> float | None:
        sizes = [abs(t[name]) for t in tuples if t[name] is not None]
        return sum((size + 1) * size for size in sizes) / sum(sizes) if any(sizes) else None

    return of


def _of_user(dice: random.Random, rows: Rows) -> Drawn | None:
    numbers = [name for name, kind in rows.kinds.items() if kind in WHOLE]
    one, other = dice.choice(numbers), dice.choice(numbers)
    if dice.random() < 0.5:
        peak = dice.choice([Peak, SlowPeak, Bits])
        return Drawn(peak(one), bits(one) if peak is Bits else largest(one), "long")
    dot = dice.choice([Dot, SlowDot])(f"coalesce({one}, 1)", f"coalesce({other}, 0)")

    def means(tuples: Sequence[Tuple]) -> int:
        pairs = ((t[one], t[other]) for t in tuples)
        return sum((1 if a is None else a) * (b or 0) for a, b in pairs)

    return Drawn(dot, means, "long")
