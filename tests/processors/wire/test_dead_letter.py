"""Dead letters: bytes that are out there, and bytes that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.wire import dead_letter
from errata.processors.wire.dead_letter import NO_RECORD, UNDECODABLE, DeadLetter, DeadLetterError

OF_INGEST = DeadLetter(
    task="ingest.trades.0",
    attempt=2,
    epoch=17,
    reason=UNDECODABLE,
    detail="not JSON",
    topic="swaps.credits",
    partition=0,
    offset=41,
    time_ms=1_600_000_000_000,
    key=None,
    value=b"\xff{",
)
OF_BOX = DeadLetter(
    task="totals.3",
    attempt=4,
    epoch=1700,
    reason="function",
    detail="box 'x'",
    topic="tape.totals",
    partition=3,
    offset=NO_RECORD,
    time_ms=85_000,
    key=b"k",
    value=None,
)

# What version 1 of the code wrote; the topic is kept for long.
OF_INGEST_BYTES = (
    "1e696e676573742e7472616465732e30042216756e6465636f6461626c65106e6f74204a534f4e1a737761"
    "70732e6372656469747300528080f4f6905d000204ff7b"
)
OF_BOX_BYTES = (
    "10746f74616c732e3308c81a1066756e6374696f6e0e626f782027782716746170652e746f74616c730601"
    "90b00a02026b00"
)


@pytest.mark.parametrize(
    ("letter", "written"), [(OF_INGEST, OF_INGEST_BYTES), (OF_BOX, OF_BOX_BYTES)]
)
def test_a_dead_letter_of_version_1_is_read_and_written_as_it_was(letter, written):
    assert dead_letter.decode(bytes.fromhex(written)) == letter
    assert dead_letter.encode(letter) == bytes.fromhex(written)


def test_a_framed_value_is_read_without_its_head():
    assert dead_letter.decode_value(b"\0\0\0\0\7" + bytes.fromhex(OF_BOX_BYTES)) == OF_BOX


@given(st.none() | st.binary(max_size=80))
def test_a_value_that_is_no_dead_letter_is_none_and_no_error(value):
    assert isinstance(dead_letter.decode_value(value), DeadLetter | None)


@pytest.mark.parametrize("size", [0, 1, 20])
def test_half_a_dead_letter_is_none(size):
    with pytest.raises(DeadLetterError, match="not a dead letter"):
        dead_letter.decode(bytes.fromhex(OF_INGEST_BYTES)[:size])
