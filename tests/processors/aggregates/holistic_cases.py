"""What functions of a whole content, and of two arguments, have to give, in plain Python."""

import json
import math
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.ladder import Key
from errata.schemas.fields import FieldType
from tests.processors.aggregates.reference import (
    BY_TIME,
    FLOATS,
    IDENTITY,
    INTS,
    LONGS,
    OCTETS,
    SINGLES,
    TEXTS,
    TIMES,
    Case,
    Row,
    by_keys,
    digits,
    keyed,
    nearest_root,
    there,
    total_order,
)

Expected = Callable[[list[Row]], Any]


def in_order(rows: list[Row]) -> list[Any]:
    return sorted(there(rows), key=total_order)


def percentile(share: str, *, scale: int = 0) -> Expected:
    """Return the double nearest to what is on the line between the closest ranks."""

    def of(rows: list[Row]) -> float | None:
        values = in_order(rows)
        if not values:
            return None
        place = Fraction(share) * (len(values) - 1)
        low, high = values[math.floor(place)], values[math.ceil(place)]
        if not (math.isfinite(low) and math.isfinite(high)):
            return float(low + high)
        line = Fraction(low) + (Fraction(high) - Fraction(low)) * (place - math.floor(place))
        return float(line / 10**scale)

    return of


def frequencies(rows: list[Row]) -> list[tuple[Any, int]]:
    """Return values and how often they are there, the most frequent first, then the smallest."""
    values = in_order(rows)
    counts = Counter(map(total_order, values))
    first = {total_order(value): value for value in reversed(values)}
    return sorted(
        ((first[key], count) for key, count in counts.items()),
        key=lambda pair: (-pair[1], total_order(pair[0])),
    )


def mode(rows: list[Row]) -> Any:
    found = frequencies(rows)
    return found[0][0] if found else None


def distinct(rows: list[Row]) -> int:
    return len({tuple(map(total_order, row)) for row in rows if None not in row})


def top_k(most: int, text: Callable[[Any], str]) -> Expected:
    def of(rows: list[Row]) -> str | None:
        values = in_order(rows)[::-1][:most]
        return f"[{','.join(map(text, values))}]" if values else None

    return of


def most_common(most: int, text: Callable[[Any], str]) -> Expected:
    def of(rows: list[Row]) -> str | None:
        pairs = frequencies(rows)[:most]
        items = (f'{{"item":{text(value)},"count":{count}}}' for value, count in pairs)
        return f"[{','.join(items)}]" if pairs else None

    return of


def quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(scale: int) -> Callable[[int], str]:
    return lambda value: format(Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale)), "f")


def day(value: int) -> str:
    return f'"{date(1970, 1, 1) + timedelta(value)}"'


def covariance(what: str, *, scales: tuple[int, int] = (0, 0)) -> Expected:
    """Return the double nearest to a covariance or correlation."""

    def of(rows: list[Row]) -> float | None:
        pairs = [
            [Fraction(value) / 10**scale for value, scale in zip(row, scales, strict=True)]
            for row in rows
            if None not in row
        ]
        least = 1 if what == "covar_pop" else 2
        if len(pairs) < least:
            return None
        means = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
        about = [(x - means[0], y - means[1]) for x, y in pairs]
        both = sum(x * y for x, y in about)
        if what != "corr":
            return float(both / (len(pairs) - (what == "covar_samp")))
        spreads = sum(x * x for x, _ in about) * sum(y * y for _, y in about)
        return math.copysign(nearest_root(both**2 / spreads), both) if spreads else None

    return of


def volatility(*directions: bool, scale: int = 0) -> Expected:
    """Return the root of the exact sum of squared returns in an order of keys behind the price."""

    def of(rows: list[Row]) -> float | None:
        rows = by_keys([row for row in rows if row[0] is not None], directions)
        prices = [float(Fraction(row[0], 10**scale) if scale else row[0]) for row in rows]
        if len(prices) < 2 or min(prices) <= 0 or any(price <= 0 for price in prices):
            return None
        if not all(map(math.isfinite, prices)):
            return math.nan
        logs = list(map(math.log, prices))
        returns = [later - before for before, later in pairwise(logs)]
        return math.sqrt(float(sum((Fraction(r * r) for r in returns), Fraction(0))))

    return of


def of_values(name: str, argument: str, values: Any, expected: Expected, *parameters: str) -> Case:
    call = Call(name, (FieldType.parse(argument),), parameters=tuple(map(Fraction, parameters)))
    return Case(call, st.tuples(st.none() | values), expected)


def of_pairs(name: str, arguments: str, values: tuple[Any, Any], expected: Expected) -> Case:
    rows = st.tuples(*(st.none() | some for some in values))
    return Case(Call(name, tuple(map(FieldType.parse, arguments.split()))), rows, expected)


FEW = st.integers(-2, 2)
DAYS = st.integers(-9, 9)
PRICES = st.floats(1.0, 2.0) | st.sampled_from([1e-300, 1e300, 5e-324])
OF_PRICE = (
    Key(FieldType("double", optional=True), largest=True),
    Key(FieldType("decimal", 38, optional=True), largest=False),
    IDENTITY,
)

HOLISTIC = [
    of_values("percentile", "long", LONGS, percentile("0.9"), "0.9"),
    of_values("percentile", "int?", INTS, percentile("1/3"), "1/3"),
    of_values("percentile", "int", INTS, percentile("0"), "0"),
    of_values("percentile", "decimal(38,38)", digits(38), percentile("0.07", scale=38), "0.07"),
    of_values("percentile", "double", FLOATS, percentile("0.7"), "0.7"),
    of_values("percentile", "float", SINGLES, percentile("1"), "1"),
    of_values("median", "decimal(5,2)", digits(5), percentile("0.5", scale=2)),
    of_values("median", "double?", FLOATS, percentile("0.5")),
    of_values("mode", "boolean", st.booleans(), mode),
    of_values("mode", "string?", TEXTS, mode),
    of_values("mode", "bytes", OCTETS, mode),
    of_values("mode", "double", FLOATS, mode),
    of_values("mode", "float", SINGLES, mode),
    of_values("mode", "decimal(38,0)", digits(38), mode),
    of_values("mode", "timestamp-millis", FEW, mode),
    of_values("count distinct", "double?", FLOATS, distinct),
    of_values("count distinct", "uuid", st.uuids().map(str), distinct),
    of_pairs("count distinct", "long string", (FEW, TEXTS), distinct),
    of_pairs("count distinct", "float decimal(38,2)", (SINGLES, digits(38)), distinct),
    of_values("top_k", "long", LONGS, top_k(2, str), "2"),
    of_values("top_k", "decimal(38,20)", digits(38), top_k(3, plain(20)), "3"),
    of_values("top_k", "string", TEXTS, top_k(1000, quoted), "1000"),
    of_values("top_k", "date", DAYS, top_k(1, day), "1"),
    of_values("most_common", "int", FEW, most_common(2, str), "2"),
    of_values("most_common", "string", st.text(max_size=2), most_common(3, quoted), "3"),
    of_values("most_common", "boolean", st.booleans(), most_common(1, json.dumps), "1"),
    keyed(
        Call("realised_volatility", (FieldType("double"),), BY_TIME),
        st.tuples(st.none() | PRICES, TIMES),
        volatility(False, False),
    ),
    keyed(
        Call("realised_volatility", (FieldType("decimal", 9, 2),), BY_TIME),
        st.tuples(st.none() | st.integers(-1, 9) | st.integers(1, 10**9 - 1), TIMES),
        volatility(False, False, scale=2),
    ),
    keyed(
        Call("realised_volatility", (FieldType("double"),), OF_PRICE),
        st.tuples(FLOATS | PRICES, st.none() | FLOATS, st.none() | digits(38)),
        volatility(True, False, False),
    ),
]

COVARIANCES = [
    of_pairs("covar_samp", "long int", (LONGS, INTS), covariance("covar_samp")),
    of_pairs("covar_pop", "long int", (FEW, FEW), covariance("covar_pop")),
    of_pairs(
        "covar_pop",
        "decimal(38,38) decimal(30,10)",
        (digits(38), digits(30)),
        covariance("covar_pop", scales=(38, 10)),
    ),
    of_pairs("corr", "int int", (FEW, FEW), covariance("corr")),
    of_pairs(
        "corr",
        "decimal(38,2) long",
        (digits(38), LONGS),
        covariance("corr", scales=(2, 0)),
    ),
]
