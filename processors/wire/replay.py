"""Replay requests from tasks to sweepers, and the replies.

They are written outside any transaction, and carry the task, attempt and epoch of the request; a
reply to an older request is ignored. ``docs/protocol.md#6-replay`` gives every field. The records
are of version 1. Fields that came later are the last ones, so that older readers pass over them;
a record without them has their defaults.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.ipc

from errata.processors.wire import avro_body
from errata.processors.wire.avro_body import BodyError
from errata.schemas import framing
from errata.schemas.errors import ErrataError

BLOCK_BYTES = 700_000
"""Approximate size of a block of a reply, in bytes."""
MOST_BLOCK_BYTES = 900_000
"""Size of a packed block at most, unless it has one tuple: a record has 1,000,000 bytes."""
ALL, ALL_MS = -1, 2**63 - 1
"""In a reply: all ranges in `covered`, all event times in `upto_ms`."""

REQUEST_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Request",
    "namespace": "errata",
    "fields": [
        {"name": "plan", "type": "string"},
        {"name": "task", "type": "string"},
        {"name": "attempt", "type": "long"},
        {"name": "epoch", "type": "long"},
        {"name": "number", "type": "long"},
        {"name": "as_of", "type": "long"},
        {"name": "partition", "type": "int"},
        {"name": "reply_topic", "type": "string"},
        {"name": "reply_partition", "type": "int"},
        {"name": "ranges", "type": "bytes"},
        {"name": "most_bytes", "type": "long", "default": 0},
    ],
}
REPLY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reply",
    "namespace": "errata",
    "fields": [
        {"name": "task", "type": "string"},
        {"name": "attempt", "type": "long"},
        {"name": "epoch", "type": "long"},
        {"name": "number", "type": "long"},
        {"name": "answer", "type": "long"},
        {"name": "block", "type": "int"},
        {"name": "blocks", "type": "int"},
        {"name": "refused", "type": ["null", "string"]},
        {"name": "tuples", "type": "bytes"},
        {"name": "covered", "type": "int", "default": ALL},
        {"name": "upto_ms", "type": "long", "default": ALL_MS},
    ],
}
_TEXT_BYTES = 16  # of each text beside its characters, which alone polars counts
_REQUEST = fastavro.parse_schema(REQUEST_SCHEMA)
_REPLY = fastavro.parse_schema(REPLY_SCHEMA)


def _first(schema: dict[str, Any]) -> Any:
    """Return a schema as it was at first, without the fields that have defaults."""
    fields = [each for each in schema["fields"] if "default" not in each]
    return fastavro.parse_schema({**schema, "fields": fields})


_FIRST_REQUEST, _FIRST_REPLY = _first(REQUEST_SCHEMA), _first(REPLY_SCHEMA)


class BlockError(ErrataError):
    """Some bytes are not a frame that `pack` wrote."""


_NO_BLOCK = (
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    ValueError,
    TypeError,
)


@dataclass(frozen=True)
class Requester:
    """The origin of a request: a reply belongs to a request only if all three are equal.

    Args:
        task: The requesting task.
        attempt: Its attempt.
        epoch: The epoch that it processes.
    """

    task: str
    attempt: int
    epoch: int


@dataclass(frozen=True)
class Request:
    """A replay request to the sweeper of one partition of a connection point.

    Args:
        plan: Fingerprint of the task's plan; a sweeper of another plan ignores the request.
        requester: Its origin.
        number: Number of the request, within the attempt.
        as_of: The epoch after which the content is requested.
        partition: The partition of the connection point.
        reply_topic: Topic of the reply.
        reply_partition: Partition of the reply.
        ranges: Groups and event times, as `pack` wrote them.
        most_bytes: Size of the tuples above which the answer covers less; 0: no limit.
    """

    plan: str
    requester: Requester
    number: int
    as_of: int
    partition: int
    reply_topic: str
    reply_partition: int
    ranges: bytes
    most_bytes: int = 0


@dataclass(frozen=True)
class Reply:
    """One block of an answer; the answer is complete once all its blocks have arrived.

    Args:
        requester: Origin of the request.
        number: Number of the request.
        answer: Random id of the answer: blocks of two answers are never combined.
        block: Number of this block, from 0.
        blocks: Number of blocks of the answer.
        refused: Why there is no answer; None if there is one.
        tuples: Tuples, as `pack` wrote them; empty if refused.
        covered: How many of the requested ranges, from the first, the answer covers, or `ALL`.
        upto_ms: Of these it covers the event times before this.
    """

    requester: Requester
    number: int
    answer: int
    block: int
    blocks: int
    refused: str | None
    tuples: bytes
    covered: int = ALL
    upto_ms: int = ALL_MS


def encode(record: Request | Reply, *, schema_id: int) -> bytes:
    """Return a request or a reply as a framed value.

    Args:
        record: The request or reply.
        schema_id: The registry's id of `REQUEST_SCHEMA` or `REPLY_SCHEMA`.
    """
    content = vars(record) | vars(record.requester)
    del content["requester"]
    body = avro_body.write(content, _REQUEST if isinstance(record, Request) else _REPLY)
    return framing.frame([body], schema_id)[0]


def decode_request(value: bytes | None) -> Request | None:
    """Return the request in a framed value; None if it holds none."""
    content = _content(value, _REQUEST, _FIRST_REQUEST)
    return None if content is None else Request(requester=_requester(content), **content)


def decode_reply(value: bytes | None) -> Reply | None:
    """Return the reply in a framed value; None if it holds none."""
    content = _content(value, _REPLY, _FIRST_REPLY)
    return None if content is None else Reply(requester=_requester(content), **content)


def _content(value: bytes | None, schema: Any, first: Any) -> dict[str, Any] | None:
    """Return the record of a framed value, written with a schema or as it was at first."""
    if value is None or len(value) <= framing.HEAD_BYTES or value[0] != framing.MAGIC:
        return None
    body = value[framing.HEAD_BYTES :]
    for written_by in (schema, first):
        with suppress(BodyError):
            return avro_body.read(body, schema, written_by=written_by)
    return None


def _requester(content: dict[str, Any]) -> Requester:
    """Remove the fields of the requester from a record, and return them as one."""
    return Requester(*(content.pop(name) for name in ("task", "attempt", "epoch")))


def pack(frame: pl.DataFrame, *, is_small: bool = False) -> bytes:
    """Return a frame as bytes (Arrow IPC), 128-bit integers as decimals.

    Args:
        frame: The frame.
        is_small: Whether they are compressed; `unpack` reads either.
    """
    wide = [name for name, kind in frame.schema.items() if kind == pl.Int128]
    out, narrow = io.BytesIO(), frame.with_columns(pl.col(wide).cast(pl.Decimal(38, 0)))
    narrow.write_ipc(out, compression="zstd" if is_small else "uncompressed")
    return out.getvalue()


def size_of(frame: pl.DataFrame) -> int:
    """Return about how many bytes a frame has, in memory and packed."""
    texts = sum(kind in (pl.String, pl.Binary) for kind in frame.dtypes)
    return int(frame.estimated_size()) + _TEXT_BYTES * texts * frame.height


def blocks(tuples: pl.DataFrame) -> Iterator[bytes]:
    """Yield a frame packed in parts of about `BLOCK_BYTES`; at least one part."""
    rows = max(1, BLOCK_BYTES * tuples.height // max(1, size_of(tuples)))
    for start in range(0, max(1, tuples.height), rows):
        yield from _small(tuples.slice(start, rows))


def _small(tuples: pl.DataFrame) -> Iterator[bytes]:
    """Yield a frame packed, cut in halves as long as a part is too large for a record."""
    packed = pack(tuples)
    if len(packed) <= MOST_BLOCK_BYTES or tuples.height == 1:
        yield packed
    else:
        half = tuples.height // 2
        yield from _small(tuples[:half])
        yield from _small(tuples[half:])


def unpack(block: bytes) -> pl.DataFrame:
    """Return the frame that `pack` wrote.

    Raises:
        BlockError: If the bytes are no such frame.
    """
    try:  # unlike polars, pyarrow checks foreign bytes, and never ends the process
        with pa.ipc.open_file(pa.BufferReader(block)) as file:
            table = file.read_all()
        table.validate(full=True)
        frame = pl.DataFrame(table)
    except _NO_BLOCK as error:
        raise BlockError(f"not a block of tuples: {str(error)[:200]}") from error
    wide = [name for name, kind in frame.schema.items() if kind == pl.Decimal]
    return frame.with_columns(pl.col(name).to_physical() for name in wide)
