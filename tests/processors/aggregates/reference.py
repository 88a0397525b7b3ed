"""What every aggregate function has to give, in plain Python, and random histories of its rows."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import polars as pl
from hypothesis import strategies as st

from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.compensating import Compensating, part_dtype, part_types
from errata.processors.aggregates.functions import aggregate_function
from errata.processors.aggregates.holistic import BagOfValues
from errata.processors.aggregates.ladder import Key
from errata.schemas.fields import FieldType

GROUPS = 3
Row = tuple[Any, ...]
Content = list[list[Row]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

LONGS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**63 - 1, 2**53])
INTS = st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)
TEXTS = st.sampled_from(["", "a", "ab", "b", "ä", "\U0001f600", "\uffff", "Z"])
OCTETS = st.sampled_from([b"", b"a", b"ab", b"\xff", b"\x00"])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -math.inf, math.inf, math.nan]) | st.floats()
SINGLES = st.sampled_from([0.0, -0.0, math.nan]) | st.floats(width=32)


def digits(precision: int) -> st.SearchStrategy[int]:
    most = 10**precision - 1
    return st.integers(-most, most) | st.integers(-5, 5) | st.sampled_from([most, -most, most - 1])


def half_up(number: Fraction) -> int:
    whole = math.floor(abs(number) + Fraction(1, 2))
    return whole if number >= 0 else -whole


def fitting(number: int, precision: int) -> int | None:
    return number if abs(number) < 10**precision else None


def same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def there(rows: Iterable[Row]) -> list[Any]:
    return [row[0] for row in rows if row[0] is not None]


def total_order(value: Any) -> Any:
    """Null, numbers, NaN; text by its bytes."""
    if value is None:
        return (0,)
    if isinstance(value, str):
        return (1, value.encode())
    return (1, value != value, 0 if value != value else value)


def by_keys(rows: list[Row], directions: Sequence[bool]) -> list[Row]:
    """Sort rows by what follows their value; a direction is whether the largest comes first."""
    for number in reversed(range(len(directions))):
        rows = sorted(
            rows,
            key=lambda row, at=number + 1: total_order(row[at]),  # type: ignore[misc]
            reverse=directions[number],
        )
    return rows


# ------------------------------------------------------------------ results of plain rows


def sum_of_longs(rows: list[Row]) -> int | None:
    values = there(rows)
    total = sum(values)
    return total if values and -(2**63) <= total < 2**63 else None


def sum_of_decimals(precision: int) -> Callable[[list[Row]], int | None]:
    return lambda rows: fitting(sum(there(rows)), precision) if there(rows) else None


def average(rows: list[Row]) -> float | None:
    values = there(rows)
    return sum(values) / len(values) if values else None


def decimal_average(precision: int, shift: int) -> Callable[[list[Row]], int | None]:
    def of(rows: list[Row]) -> int | None:
        values = there(rows)
        if not values:
            return None
        return fitting(half_up(Fraction(sum(values) * 10**shift, len(values))), precision)

    return of


def nearest_root(square: Fraction) -> float:
    """Return the double nearest to a root, by 120 decimal digits of it."""
    with localcontext() as context:
        context.prec = 120
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


def spread(*, sample: bool, root: bool, scale: int = 0) -> Callable[[list[Row]], float | None]:
    def of(rows: list[Row]) -> float | None:
        values = [Fraction(value, 10**scale) for value in there(rows)]
        if len(values) < 1 + sample:
            return None
        variance = statistics.variance if sample else statistics.pvariance
        found = Fraction(variance(values))
        return nearest_root(found) if root else float(found)

    return of


def best(*, largest: bool) -> Callable[[list[Row]], Any]:
    pick = max if largest else min
    return lambda rows: pick(there(rows), key=total_order) if there(rows) else None


def first_by(
    *directions: bool, ignore_nulls: bool = False, needs_key: bool = False
) -> Callable[[list[Row]], Any]:
    """Return the value of the first row; a direction is whether the largest comes first."""

    def of(rows: list[Row]) -> Any:
        if ignore_nulls:
            rows = [row for row in rows if row[0] is not None]
        if needs_key:
            rows = [row for row in rows if row[1] is not None]
        found = by_keys(rows, directions)
        return found[0][0] if found else None

    return of


def logical(how: Callable[[Iterable[bool]], bool]) -> Callable[[list[Row]], bool | None]:
    return lambda rows: how(there(rows)) if there(rows) else None


# ------------------------------------------------------------------ cases


@dataclass(frozen=True)
class Case:
    """A function of some arguments, what rows to try it with, and what it has to give."""

    call: Call
    values: st.SearchStrategy[Row]
    expected: Callable[[list[Row]], Any]
    keyed: bool = False
    """Whether an identity is put behind each row, so that no two are alike."""

    @property
    def id(self) -> str:
        nulls = "-ignore-nulls" if self.call.ignore_nulls else ""
        return f"{self.call.name}{nulls}-{'-'.join(map(str, self.call.types))}"

    @property
    def types(self) -> list[FieldType]:
        return [*self.call.types, *(key.type for key in self.call.order)]

    @property
    def function(self) -> Compensating:
        return aggregate_function(self.call)


def case(
    name: str, argument: str | None, values: Any, expected: Callable[[list[Row]], Any]
) -> Case:
    types = () if argument is None else (FieldType.parse(argument),)
    rows = st.tuples() if argument is None else st.tuples(st.none() | values)
    return Case(Call(name, types), rows, expected)


TIME, TEXT, LONG = FieldType("timestamp-millis"), FieldType("string"), FieldType("long")
TIMES = st.integers(-2, 2)
IDENTITY = Key(TEXT, largest=False)
BY_TIME = (Key(TIME, largest=False), IDENTITY)
BY_TWO = (
    Key(FieldType("double", optional=True), largest=True),
    Key(FieldType("string", optional=True), largest=False),
    IDENTITY,
)


def keyed(call: Call, values: st.SearchStrategy[Row], expected: Callable[[list[Row]], Any]) -> Case:
    return Case(call, values, expected, keyed=True)


EXACT = [
    case("count", None, None, len),
    case("count", "string?", TEXTS, lambda rows: len(there(rows))),
    case("count_if", "boolean?", st.booleans(), lambda rows: sum(there(rows))),
    case("sum", "int", INTS, sum_of_longs),
    case("sum", "long", LONGS, sum_of_longs),
    case("sum", "decimal(5,2)", digits(5), sum_of_decimals(15)),
    case("sum", "decimal(28,2)", digits(28), sum_of_decimals(38)),
    case("sum", "decimal(29,2)", digits(29), sum_of_decimals(38)),
    case("sum", "decimal(38,0)", digits(38), sum_of_decimals(38)),
    case("avg", "int", INTS, average),
    case("avg", "long", LONGS, average),
    case("avg", "decimal(5,2)", digits(5), decimal_average(9, 4)),
    case("avg", "decimal(28,2)", digits(28), decimal_average(32, 4)),
    case("avg", "decimal(36,36)", digits(36), decimal_average(38, 2)),
    case("avg", "decimal(38,0)", digits(38), decimal_average(38, 4)),
    case("var_samp", "int", INTS, spread(sample=True, root=False)),
    case("var_samp", "long", LONGS, spread(sample=True, root=False)),
    case("var_pop", "decimal(5,2)", digits(5), spread(sample=False, root=False, scale=2)),
    case("var_samp", "decimal(38,38)", digits(38), spread(sample=True, root=False, scale=38)),
    case("stddev_samp", "long", LONGS, spread(sample=True, root=True)),
    case("stddev_pop", "decimal(28,10)", digits(28), spread(sample=False, root=True, scale=10)),
    case("stddev_pop", "decimal(38,38)", digits(38), spread(sample=False, root=True, scale=38)),
    case("bool_and", "boolean?", st.booleans(), logical(all)),
    case("bool_or", "boolean?", st.booleans(), logical(any)),
]
EXTREMES = [
    case(name, argument, values, best(largest=name == "max"))
    for name in ("min", "max")
    for argument, values in (
        ("long", LONGS),
        ("int", INTS),
        ("date", INTS),
        ("timestamp-millis?", LONGS),
        ("timestamp-micros", LONGS),
        ("decimal(38,0)", digits(38)),
        ("boolean", st.booleans()),
        ("string", TEXTS),
        ("uuid", st.uuids().map(str)),
        ("bytes", OCTETS),
        ("double", FLOATS),
        ("float", SINGLES),
    )
] + [
    keyed(
        Call("first", (LONG,), BY_TIME),
        st.tuples(st.none() | LONGS, TIMES),
        first_by(False, False),
    ),
    keyed(
        Call("last", (FieldType("decimal", 38, 2),), BY_TIME),
        st.tuples(st.none() | digits(38), TIMES),
        first_by(True, True),
    ),
    keyed(
        Call("first", (FieldType("bytes"),), BY_TIME, ignore_nulls=True),
        st.tuples(st.none() | OCTETS, TIMES),
        first_by(False, False, ignore_nulls=True),
    ),
    keyed(
        Call("last", (FieldType("boolean"),), BY_TIME, ignore_nulls=True),
        st.tuples(st.none() | st.booleans(), TIMES),
        first_by(True, True, ignore_nulls=True),
    ),
    keyed(
        Call("first", (FieldType("double"),), BY_TWO),
        st.tuples(FLOATS, st.none() | FLOATS, st.none() | TEXTS),
        first_by(True, False, False),
    ),
    keyed(
        Call("last", (LONG,), BY_TWO),
        st.tuples(LONGS, st.none() | FLOATS, st.none() | TEXTS),
        first_by(False, True, True),
    ),
    keyed(
        Call("max_by", (LONG, FieldType("double", optional=True)), BY_TIME),
        st.tuples(st.none() | LONGS, st.none() | FLOATS, TIMES),
        first_by(True, False, False, needs_key=True),
    ),
    keyed(
        Call("min_by", (TEXT, FieldType("string", optional=True)), BY_TIME),
        st.tuples(st.none() | TEXTS, st.none() | TEXTS, TIMES),
        first_by(False, False, False, needs_key=True),
    ),
]


# ------------------------------------------------------------------ histories


def of_content(function: Compensating, states: pl.DataFrame) -> pl.DataFrame:
    """Return what depends on the content alone: what is kept, all of it where nothing is."""
    return states.select(function.kept) if function.kept else states


def columns(rows: list[tuple[int, Row]], types: list[FieldType]) -> tuple[pl.Series, pl.DataFrame]:
    groups = pl.Series([group for group, _ in rows], dtype=pl.UInt32)
    return groups, pl.DataFrame(
        [
            pl.Series(str(number), [row[number] for _, row in rows], dtype=kind.dtype)
            for number, kind in enumerate(types)
        ]
    )


def fresh(function: Compensating, content: Content, types: list[FieldType]) -> pl.DataFrame:
    """Return the states of a content that entered at once."""
    rows = [(group, row) for group, inside in enumerate(content) for row in inside]
    return function.accumulate(function.init(len(content)), *columns(rows, types))


@dataclass
class History:
    """Random changes of a function's states; `content` is what is in, `moved` what ever was."""

    function: Compensating
    types: list[FieldType]
    values: st.SearchStrategy[Row]
    keyed: bool = False

    def __post_init__(self) -> None:
        self.states = self.function.init(GROUPS)
        self.content: Content = [[] for _ in range(GROUPS)]
        self.moved: Content = [[] for _ in range(GROUPS)]
        self.change_count = 0
        self._made = 0

    def run(self, draw: Draw, *, most: int = 6) -> None:
        kinds = ["accumulate", "accumulate", "compensate", "compensate", "merge", "recall"]
        for _ in range(draw(st.integers(1, most))):
            before = self.states.clone()
            getattr(self, draw(st.sampled_from(kinds)))(draw)
            self.change_count += 1
            self._judge()
            assert before.columns == self.states.columns

    def accumulate(self, draw: Draw) -> None:
        given, change = self.states.clone(), self._new(draw)
        after = self.function.accumulate(self.states, *columns(change, self.types))
        assert self.states.equals(given)  # pure
        self.states = after
        self._enter(change)

    def compensate(self, draw: Draw) -> None:
        pool = [(g, i) for g, inside in enumerate(self.content) for i in range(len(inside))]
        chosen = draw(st.lists(st.sampled_from(pool), unique=True)) if pool else []
        if draw(st.booleans()):  # all rows but a few
            chosen = [each for each in pool if each not in set(chosen)]
        change = [(g, self.content[g][i]) for g, i in chosen]
        given = self.states.clone()
        after = self.function.compensate(self.states, *columns(change, self.types))
        assert self.states.equals(given)
        self.states = after
        for g, i in sorted(chosen, reverse=True):
            del self.content[g][i]
        for g, row in change:
            self.moved[g].append(row)

    def merge(self, draw: Draw) -> None:
        change = self._new(draw)
        empty = self.function.init(GROUPS)
        other = self.function.accumulate(empty, *columns(change, self.types))
        pair = (self.states, other) if draw(st.booleans()) else (other, self.states)
        self.states = self.function.merge(*pair)
        self._enter(change)

    def recall(self, draw: Draw) -> None:
        """Forget all but what a stored result has, where it could have been stored."""
        if self.function.kept and self.function.exact(self.states).all():
            self.states = self.function.recall(self.states.select(self.function.kept))

    def _new(self, draw: Draw) -> list[tuple[int, Row]]:
        rows = draw(st.lists(st.tuples(st.integers(0, GROUPS - 1), self.values), max_size=6))
        if not self.keyed:
            rows *= draw(st.sampled_from([1, 1, 5]))  # more than an extreme sorts
        else:
            # An identity that left may come again, with other values.
            free = [f"id{n}" for n in range(9) if not self._has(f"id{n}")]
            names = draw(st.permutations(free))
            rows = [(g, (*row, name)) for (g, row), name in zip(rows, names, strict=False)]
        return rows

    def _has(self, name: str) -> bool:
        return any(row[-1] == name for inside in self.content for row in inside)

    def _enter(self, change: list[tuple[int, Row]]) -> None:
        for group, row in change:
            self.content[group].append(row)
            self.moved[group].append(row)

    def _judge(self) -> None:
        types = part_types(self.function)
        assert dict(self.states.schema) == {name: part_dtype(part) for name, part in types.items()}
        assert self.states.height == GROUPS
        for name, part in types.items():
            optional = isinstance(part, FieldType) and part.optional
            assert optional or not self.states[name].has_nulls()


def entered(function: BagOfValues, *rows: tuple[int, Any], groups: int = 2) -> pl.DataFrame:
    """Return the states of values that entered groups by their numbers."""
    content = [(group, (value,)) for group, value in rows]
    return function.accumulate(function.init(groups), *columns(content, [function.argument]))
