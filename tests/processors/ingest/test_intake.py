"""Intake: sizes, keys, event times that are computed, what is passed over."""

from dataclasses import replace

import pytest

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.envelopes.batch import LONGEST_VALUE
from errata.processors.ingest.intake import Intake
from errata.schemas.arc import Arc
from tests.processors.envelopes.records import Registry, kinds, source, text

FIELDS = {"key": "string", "day": "date?", "n": "long?"}


def intake(envelope="upsert", format="json", event_time="cast(day as timestamp)") -> Intake:
    """Return the intake of a source whose event time is computed."""
    fields = kinds(FIELDS)
    hidden = kinds({"__event_time": "timestamp-millis"})
    arc = Arc("s", fields | hidden, ("key",), "__event_time", ("key",), keep_ms=86_400_000)
    declared = source(envelope, format, {**FIELDS, "at": "timestamp-millis"})
    return Intake(
        replace(declared, arc=arc, event_time=event_time), ArcCodec(arc, "t.s", Registry())
    )


def row(key="a", day="1970-01-03", n=1) -> bytes:
    return text({"key": key, "day": day, "n": n})


def test_an_event_time_that_is_computed_is_a_hidden_field_of_both_sides():
    sided = text(
        {"op": "replace", "before": {"key": "a", "day": 1}, "after": {"key": "a", "day": 2}}
    )
    found = intake("native").decode([sided])
    assert not found.refused
    ((before, after),) = found.frame.select("before.__event_time", "after.__event_time").rows()
    assert (before, after) == (86_400_000, 2 * 86_400_000)


def test_a_computed_event_time_that_is_null_is_refused():
    found = intake().decode([row(day=None), row()])
    assert [(r.row, r.reason, r.detail) for r in found.refused] == [
        (0, "event time", "event time is null")
    ]
    assert found.frame["__row"].to_list() == [1]


def test_deletes_by_key_need_no_event_time():
    found = intake().decode([None, None], [b"a", None])
    assert found.frame.select("op", "before.key", "has_before").rows() == [(1, "a", False)]
    assert [(r.row, r.reason) for r in found.refused] == [(1, "undecodable")]


@pytest.mark.parametrize("where", ["value", "key"])
def test_a_record_too_large_is_refused_unread_and_places_stay(where):
    big = b"x" * (LONGEST_VALUE + 1)
    values = [row("a"), big if where == "value" else row("b"), b"{", row("c")]
    keys = [None, big if where == "key" else None, None, None]
    found = intake().decode(values, keys)
    assert sorted((r.row, r.reason) for r in found.refused) == [
        (1, "too large"),
        (2, "undecodable"),
    ]
    assert found.frame["__row"].to_list() == [0, 3]


def test_what_is_passed_over_is_counted():
    found = intake("debezium").decode([None, text({"ts_ms": 1}), text({"op": "t"})])
    assert found.passed == 2
    assert [r.reason for r in found.refused] == ["truncate"]


def test_a_replace_without_an_original_changes_what_its_identity_names():
    found = intake("native").decode([text({"op": "replace", "after": {"key": "a", "day": 2}})])
    assert found.frame.select("op", "has_before", "moved").rows() == [(2, False, False)]
