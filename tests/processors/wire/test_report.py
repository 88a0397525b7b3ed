"""Reports: bytes that are out there, fields that travel as counts, keys of totals, other bytes."""

from contextlib import suppress
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.wire import report as reports
from errata.processors.wire.report import NEVER, CountKey, Floor, Note, Report, ReportError
from errata.topics.cluster import TopicPartition

REPORT = Report(
    "totals.3",
    attempt=4,
    plan="0123456789abcdef",
    done=1700,
    watermark=1_600_000_000_000,
    committed={1: 900, 4: 1700},
    ends={TopicPartition("tape.totals", 3): (1234, 1699)},
    resume={TopicPartition("tape.trades", 3): 77},
    watermarks=((1699, 5), (1700, 6)),
    floors=(Floor(("quotes", "trades"), 1600, 4),),
    closes=1_600_000_060_000,
    counts={"totals.revised": 5, "refused.undecodable": 2, "dead_letters": 2},
    settled_ms=1_500_000_000_000,
)

# What version 1 of the code wrote, when the last two fields were counts in memory too.
REPORT_BYTES = (
    "10746f74616c732e33082030313233343536373839616263646566c81a8080f4f6905d0402880e08c81a00"
    "0216746170652e746f74616c7306a413c61a000216746170652e747261646573069a010004c61a0ac81a0c"
    "0002040c71756f7465730c7472616465730080190800c0a9fbf6905d0c14736574746c65645f6d7380e0bc"
    "efa7571268656c645f66726f6d030e68656c645f746f0e1c746f74616c732e726576697365640a26726566"
    "757365642e756e6465636f6461626c650418646561645f6c6574746572730400"
)
FIRST_BYTES = (
    "1c73776565702e7472616465732e30000001ffffffffffffffff7f00000000008080808080808080800100"
)


def test_a_report_of_version_1_is_read_as_it_was():
    assert reports.decode(bytes.fromhex(REPORT_BYTES)) == REPORT
    assert reports.decode(bytes.fromhex(FIRST_BYTES)) == Report("sweep.trades.0")


def test_the_fields_that_travel_as_counts_are_where_older_readers_look_for_them():
    parsed = fastavro.parse_schema(reports.SCHEMA)
    was, now = (
        reports.avro_body.read(body, parsed)
        for body in (bytes.fromhex(REPORT_BYTES), reports.encode(REPORT))
    )
    assert (was["counts"].pop("held_from"), was["counts"].pop("held_to")) == (-2, 7)  # retired
    assert now == was
    assert reports.encode(Report("sweep.trades.0")) == bytes.fromhex(FIRST_BYTES)


@given(st.dictionaries(st.integers(-1, 2**62), st.integers(-1, 2**62)))
def test_pairs_of_epochs_travel_as_counts(pairs):
    written = replace(REPORT, bound=tuple(sorted(pairs.items())))
    assert reports.decode(reports.encode(written)) == written


def test_a_count_whose_key_is_nearly_that_of_a_pair_stays_one():
    odd = {
        "bound_epoch.": 1,
        "bound_epoch.x": 2,
        "bound_epoch.1.5": 3,
        "bound_epoch.9" + "9" * 30: 4,
    }
    written = replace(REPORT, counts=odd)
    assert reports.decode(reports.encode(written)) == written


def test_a_count_of_never_is_no_field():
    written = replace(REPORT, settled_ms=NEVER, counts={"settled_ms": NEVER})
    assert reports.decode(reports.encode(written)) == replace(written, counts={})


NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(
    st.dictionaries(st.text(), NUMBERS),
    NUMBERS,
    st.integers(-1, 2**62),
    st.none() | NUMBERS,
    st.integers(-1, 2**62),
)
def test_a_report_comes_back_as_it_was_written(counts, settled_ms, rebuilt, believed, lowered):
    own = {name: n for name, n in counts.items() if name not in reports.WIRE_FIELDS}
    written = replace(REPORT, counts=own, settled_ms=settled_ms, rebuilt=rebuilt)
    written = replace(written, believed=believed, lowered=lowered)
    read = reports.decode(reports.encode(written))
    assert read == written
    assert Note.parse(str(Note.of(written, "d0"))).is_of(read)


@given(st.text() | st.just("f" * 64) | st.just("f" * 64 + " d0 1 x"))
def test_a_text_that_is_no_note_tells_nothing(text):
    note = Note.parse(text)
    assert not note.is_of(REPORT)
    assert not note.is_newer(Report(REPORT.task), "d0")


@given(st.binary(max_size=120))
def test_bytes_never_raise_anything_else(body):
    with suppress(ReportError):
        reports.decode(body)


@pytest.mark.parametrize("size", [0, 1, 20, 60])
def test_half_a_report_is_none(size):
    with pytest.raises(ReportError, match="not a report"):
        reports.decode(bytes.fromhex(REPORT_BYTES)[:size])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("read", CountKey("read")),
        ("totals.revised", CountKey("revised", "totals")),
        ("ratio-n.exchange.judged", CountKey("judged", "ratio-n.exchange")),
        ("totals.refused", CountKey("refused", "totals")),
        ("refused.event time", CountKey.of_reason("event time")),
        ("refused.closed", CountKey("closed", "refused")),
        ("refused.refused", CountKey("refused", "refused")),
        ("refused.a.b", CountKey.of_reason("a.b")),
    ],
)
def test_a_key_is_written_as_it_always_was(text, key):
    assert CountKey.parse(text) == key
    assert str(key) == text


@given(
    st.text() | st.lists(st.sampled_from(["refused", "closed", "a", ""]), max_size=4).map(".".join)
)
def test_a_text_comes_back_from_its_key(text):
    assert str(CountKey.parse(text)) == text
