"""Replay requests, replies and blocks: bytes that are out there, and bytes that are none."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from errata.processors.wire import replay
from errata.processors.wire.replay import BlockError, Reply, Request, Requester, pack, unpack

ASKER = Requester("totals.3", attempt=4, epoch=1700)
REQUEST = Request(
    plan="0123456789abcdef",
    requester=ASKER,
    number=9,
    as_of=1699,
    partition=3,
    reply_topic="tape.totals.replay",
    reply_partition=3,
    ranges=b"frame",
)
REPLY = Reply(ASKER, number=9, answer=2**61, block=0, blocks=2, refused=None, tuples=b"frame")
REFUSAL = replace(REPLY, refused="gone", tuples=b"")
FRAME = pl.DataFrame({"from": [1, 2], "big": pl.Series([1, 10**30], dtype=pl.Int128)})

# What version 1 of the code wrote; it has to be read for as long as such topics are kept.
REQUEST_BYTES = (
    "0000000007203031323334353637383961626364656610746f74616c732e3308c81a12c61a062474617065"
    "2e746f74616c732e7265706c6179060a6672616d65"
)
REPLY_BYTES = "000000000810746f74616c732e3308c81a128080808080808080400004000a6672616d65"
REFUSAL_BYTES = "000000000810746f74616c732e3308c81a1280808080808080804000040208676f6e6500"
FRAME_BYTES = (
    "4152524f5731000004000000f2ffffff140000000400010000000a000b0008000a000400f8ffffff0c0000"
    "000800080000000400020000003800000004000000bcffffff240000001000000008000000010700000000"
    "0000f6ffffff2600000000000600080004000300000062696700ecffffff38000000200000001800000001"
    "02000010001200040010001100080000000c0000000000f4ffffff40000000010000000800090004000800"
    "0400000066726f6d00000000ffffffffb000000004000000ecffffff800000000000000014000000040003"
    "000c001300100012000c000400eaffffff02000000000000005c0000001000000000000a00140004000c00"
    "10000400000000000000000000000000000000000000000000000000000010000000000000004000000000"
    "00000000000000000000004000000000000000200000000000000000000000020000000200000000000000"
    "00000000000000000200000000000000000000000000000001000000000000000200000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000100000000000000000000000000000000000040eaed7446d09c2c9f0c000000000000000000000000"
    "0000000000000000000000000000000000000000000000ffffffff0000000004000000ecffffff40000000"
    "3800000014000000040000000c0012001000040008000c0001000000b800000000000000b8000000000000"
    "0080000000000000000000000000000000f8ffffff0c000000080008000000040002000000380000000400"
    "0000bcffffff2400000010000000080000000107000000000000f6ffffff26000000000006000800040003"
    "00000062696700ecffffff3800000020000000180000000102000010001200040010001100080000000c00"
    "00000000f4ffffff400000000100000008000900040008000400000066726f6d00d90000004152524f5731"
)


def test_a_request_of_version_1_is_read_as_it_was():
    assert replay.decode_request(bytes.fromhex(REQUEST_BYTES)) == REQUEST


@pytest.mark.parametrize(("reply", "written"), [(REPLY, REPLY_BYTES), (REFUSAL, REFUSAL_BYTES)])
def test_a_reply_of_version_1_is_read_as_it_was(reply, written):
    assert replay.decode_reply(bytes.fromhex(written)) == reply


@pytest.mark.parametrize(
    ("record", "written"),
    [(REQUEST, REQUEST_BYTES), (REPLY, REPLY_BYTES), (REFUSAL, REFUSAL_BYTES)],
)
def test_version_1_reads_a_new_record_and_passes_over_its_last_fields(record, written):
    value = replay.encode(record, schema_id=int.from_bytes(bytes.fromhex(written)[1:5], "big"))
    assert value.startswith(bytes.fromhex(written))


def test_a_reply_in_part_is_read_as_it_was_written():
    part = replace(REPLY, covered=3, upto_ms=-5)
    assert replay.decode_reply(replay.encode(part, schema_id=8)) == part
    request = replace(REQUEST, most_bytes=7)
    assert replay.decode_request(replay.encode(request, schema_id=8)) == request


def test_a_block_of_version_1_is_read_as_it_was():
    assert_frame_equal(unpack(bytes.fromhex(FRAME_BYTES)), FRAME)


def test_a_block_keeps_128_bit_integers():
    assert_frame_equal(unpack(pack(FRAME)), FRAME)


@given(st.binary(max_size=80), st.booleans())
def test_bytes_that_are_no_request_or_reply_are_none_and_no_error(body, framed):
    value = b"\x00\x00\x00\x00\x07" + body if framed else body
    assert isinstance(replay.decode_request(value), Request | None)
    assert isinstance(replay.decode_reply(value), Reply | None)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x07", b"{}"])
def test_what_is_not_framed_is_no_request_or_reply(value):
    assert replay.decode_request(value) is None
    assert replay.decode_reply(value) is None


@pytest.mark.parametrize("size", [0, 1, 7, 100])
def test_a_damaged_block_is_a_block_error(size):
    with pytest.raises(BlockError, match="not a block of tuples"):
        unpack(pack(FRAME)[:size])


@pytest.mark.parametrize(
    "texts",
    [
        ["a"] * 200_000,  # in memory a short text is many times its characters
        ["a"] * 100_000 + ["b" * 100] * 20_000,  # all the large ones are in the last blocks
        ["x" * 2_000_000],  # a tuple is never cut
        [],
    ],
)
def test_a_frame_is_cut_into_blocks_that_fit_into_records(texts):
    frame = pl.DataFrame(
        {"text": texts, "number": [1] * len(texts)},
        schema_overrides={"text": pl.String, "number": pl.Int64},
    )
    blocks = list(replay.blocks(frame))
    assert_frame_equal(pl.concat(map(unpack, blocks)), frame)
    assert all(
        len(block) <= replay.MOST_BLOCK_BYTES or unpack(block).height == 1 for block in blocks
    )
