"""Intake: sizes, keys, event times that are computed, what is passed over."""

from dataclasses import replace

import polars as pl
import pytest

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.envelopes.batch import LONGEST_VALUE, Decoded
from errata.processors.ingest.intake import AHEAD, KEY, NEWEST, Intake, reconcile, refuse_ahead
from errata.processors.plan.topology import Source
from errata.schemas.arc import Arc
from errata.topics.cluster import Records, TopicPartition
from tests.processors.envelopes.records import Registry, kinds, source, text

DAY_MS = 86_400_000
FIELDS = {"key": "string", "day": "date?", "n": "long?"}


def intake(envelope="upsert", format="json", event_time="cast(day as timestamp)") -> Intake:
    """Return the intake of a source whose event time is computed."""
    fields = kinds(FIELDS)
    hidden = kinds({"__event_time": "timestamp-millis"})
    arc = Arc("s", fields | hidden, ("key",), "__event_time", ("key",), keep_ms=86_400_000)
    made = replace(declared(arc, envelope, format), event_time=event_time)
    return Intake(made, ArcCodec(arc, "t.s", Registry()))


def declared(arc: Arc, envelope="native", format="json") -> Source:
    return replace(source(envelope, format, {**FIELDS, "at": "timestamp-millis"}), arc=arc)


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


def test_records_are_refused_wherever_they_lie_in_a_batch_of_several_pieces():
    """A frame that is filtered may begin with an empty piece, which not all of Polars bears."""
    made, days = intake("native"), (3, 3, 1, 1, 9, 9)
    lines = [
        text({"op": "insert", "after": {"key": f"k{n}", "day": day}}) for n, day in enumerate(days)
    ]
    pieces = [made.decode([line]).frame for line in lines]
    frame = pl.concat(pieces, rechunk=False).with_columns(
        pl.Series("__row", range(6), pl.Int64), pl.Series(NEWEST, [3 * DAY_MS] * 6)
    )
    frame = pl.concat(
        [frame[:2].rechunk(), frame[2:4].rechunk(), frame[4:].rechunk()], rechunk=False
    )
    assert frame.n_chunks() == 3
    fields = {name: kind.dtype for name, kind in made.arc.fields.items()}
    nothing = pl.DataFrame(schema={**fields, KEY: pl.Binary})
    found = reconcile(made.arc, frame, nothing)
    assert found.refused["__row"].to_list() == [2, 3]
    assert found.refused["detail"][0] == "event time before 172800000, the oldest that is kept"
    ahead = replace(declared(made.arc), max_ahead_ms=DAY_MS)
    read = Records(TopicPartition("t", 0), list(range(6)), [None] * 6, [None] * 6, [DAY_MS] * 6)
    kept = refuse_ahead(Decoded(frame, []), ahead, [read], now_ms=5 * DAY_MS)
    assert [(refusal.row, refusal.reason) for refusal in kept.refused] == [
        (row, AHEAD) for row in (0, 1, 4, 5)
    ]
