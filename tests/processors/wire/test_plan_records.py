"""The records of the plan topic: as they are out there, and values that are none."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.wire import plan_records
from errata.processors.wire.plan_records import (
    EndRecord,
    PlanRecord,
    PlanRecordError,
    SwitchRecord,
    WatermarkRecord,
)

PLAN = PlanRecord(2, 1701, "0a1b2c3d4e5f", {"totals": 2}, {"network": "tape", "arcs": {}})

# What version 1 of the code wrote: a deployed network has them for as long as it lives.
WRITTEN = [
    (
        PLAN,
        b"plan",
        b'{"deployment": "0a1b2c3d4e5f", "first_epoch": 1701, "generations": {"totals": 2}, '
        b'"plan": {"arcs": {}, "network": "tape"}, "version": 2}',
    ),
    (SwitchRecord(3), b"switch", b'{"version": 3}'),
    (EndRecord("trades", {0: 17, 10: 4}), b"end.trades", b'{"0": 17, "10": 4}'),
    (
        WatermarkRecord("trades", 1_790_000_000_000, 4),
        b"watermark.trades",
        b'{"resent": 4, "time_ms": 1790000000000}',
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN)
def test_a_record_of_version_1_is_read_and_written_as_it_was(record, key, value):
    assert plan_records.decode(key, value) == record
    assert plan_records.encode(record) == (key, value)


def test_a_field_that_is_not_known_is_passed_over():
    assert plan_records.decode(b"switch", b'{"version": 3, "later": 1}') == SwitchRecord(3)


@pytest.mark.parametrize(("key", "value"), [(None, b"{}"), (b"plan", None), (b"other", b"{")])
def test_a_foreign_key_or_a_tombstone_is_no_record(key, value):
    assert plan_records.decode(key, value) is None


@pytest.mark.parametrize("key", [b"plan", b"switch", b"end.trades", b"watermark.trades"])
@pytest.mark.parametrize(
    "value", [b"", b"{", b"[]", b"3", b"null", b'{"version": "x"}', b"[" * 100_000, b"\xff"]
)
def test_a_value_that_is_no_record_is_an_error_that_names_the_key(key, value):
    with pytest.raises(PlanRecordError, match=f"record '{key.decode()}' of the plan topic"):
        plan_records.decode(key, value)


@given(
    st.sampled_from([b"plan", b"switch", b"end.", b"end.\xff", b"watermark."]),
    st.binary(max_size=60),
)
def test_bytes_never_raise_anything_else(key, value):
    with suppress(PlanRecordError):
        plan_records.decode(key, value)
