"""Texts as values, at their edges; and decimals, dates and instants against Python's own."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.envelopes.texts import parse, rescale
from errata.schemas.fields import FieldType

EXACT = Context(prec=400)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(kind: str, *texts: str | None) -> list[object]:
    found = parse(pl.Series(texts, dtype=pl.String), FieldType.parse(kind))
    assert found.dtype == FieldType.parse(kind).dtype
    return found.to_list()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "2147483647", 2**31 - 1),
        ("int", "2147483648", None),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "9223372036854775808", None),
        ("long", "007", None),
        ("long", "1.0", None),
        ("long", "", None),
        ("double", "1e308", 1e308),
        ("double", "1e309", None),
        ("double", "inf", None),
        ("double", "NaN", None),
        ("float", "1e39", None),
        ("boolean", "TRUE", True),
        ("boolean", "0", False),
        ("boolean", "yes", None),
        ("bytes", "/wA/", b"\xff\x00?"),
        ("bytes", "/wA", None),
        ("bytes", "", b""),
        ("date", "2024-02-29", 19_782),
        ("date", "2023-02-29", None),
        ("date", "-1", -1),
        ("date", "2024-2-9", None),
        ("timestamp-millis", "1970-01-01", 0),
        ("timestamp-millis", "1970-01-01 00:00", 0),
        ("timestamp-millis", "1970-01-01T00:00:00-05:30", 19_800_000),
        ("timestamp-millis", "1970-01-01T00:00:00+0530", -19_800_000),
        ("timestamp-millis", "1970-01-01T01:00:00+01", 0),
        ("timestamp-millis", "1969-12-31T23:59:59.9999Z", -1),
        ("timestamp-micros", "1970-01-01T00:00:00,000001999z", 1),
        ("timestamp-millis", "1970-01-01T24:00:00Z", None),
        ("timestamp-millis", "1970-01-01T00:60:00Z", None),
        ("timestamp-millis", "1970-01-01T00:00:60Z", None),
        ("timestamp-millis", "1970-01-01T00:00:00+24:00", None),
        ("timestamp-millis", "1970-01-01T00:00:00 Europe/Paris", None),
        ("timestamp-millis", "1970-01-01Z", None),
        ("timestamp-millis", "soon", None),
        ("uuid", "550E8400E29B41D4A716446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ("uuid", "550e8400-e29b-41d4-a716-44665544000", None),
        ("decimal(9,2)", "+1", 100),
        ("decimal(9,2)", "-0.05", -5),
        ("decimal(9,2)", "1.500000", 150),
        ("decimal(9,2)", "1.505", None),
        ("decimal(9,2)", "9999999.99", 999_999_999),
        ("decimal(9,2)", "10000000", None),
        ("decimal(9,2)", "1E-2", 1),
        ("decimal(9,2)", "1e+3", 100_000),
        ("decimal(9,2)", "1e99999", None),
        ("decimal(9,2)", "0e9999", 0),
        ("decimal(9,2)", "1.", 100),
        ("decimal(9,2)", ".5", None),
        ("decimal(9,2)", "Infinity", None),
        ("decimal(38,38)", "0." + "9" * 38, 10**38 - 1),
        ("decimal(38,0)", "9" * 39, None),
    ],
)
def test_a_text_is_the_value_it_says_or_none(kind, text, value):
    assert read(kind, text) == [value]
    assert read(kind, None, text, text) == [None, value, value]
    assert read(kind) == []


@given(st.lists(st.tuples(st.integers(-(10**20), 10**20), st.integers(-30, 30)), min_size=1))
def test_decimals_are_exact_or_none(numbers):
    kind = FieldType.parse("decimal(20,4)")
    texts = [f"{Decimal(n).scaleb(-places, EXACT):{'f' if n % 2 else ''}}" for n, places in numbers]
    scales = pl.Series([places for _, places in numbers], dtype=pl.Int64)
    unscaled = pl.Series([n for n, _ in numbers], dtype=pl.Int128)
    wanted = []
    for n, places in numbers:
        value = Decimal(n).scaleb(4 - places, EXACT)
        fits = value == value.to_integral_value() and abs(value) < 10**20
        wanted.append(int(value) if fits else None)
    assert read(str(kind), *texts) == wanted
    assert rescale(unscaled, scales, kind).to_list() == wanted


OFFSETS = st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))


@given(
    st.lists(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=OFFSETS), min_size=1)
)
def test_instants_are_those_that_python_reads(times):
    texts = [t.isoformat(sep=" " if i % 2 else "T") for i, t in enumerate(times)]
    micros = [(t - EPOCH) // timedelta(microseconds=1) for t in times]
    assert read("timestamp-micros", *texts) == micros
    assert read("timestamp-millis", *texts) == [us // 1000 for us in micros]
