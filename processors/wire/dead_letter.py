"""Dead letters: records and tuples that ingest or a box refused, verbatim, with place and reason.

They are written in the transaction of the report that covers them; by a job on Spark, before it.
``docs/protocol.md#8-dead-letters`` gives every field. Version 1: there has been no other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import fastavro

from errata.processors.wire import avro_body
from errata.processors.wire.avro_body import BodyError
from errata.schemas import framing
from errata.schemas.errors import ErrataError

UNDECODABLE = "undecodable"
UNKNOWN_IDENTITY = "unknown identity"
BAD_EVENT_TIME = "event time"
TOO_OLD = "older than keep"
AHEAD = "ahead of the clock"
TOO_LARGE = "too large"
TRUNCATE = "truncate"

NO_RECORD = -1
"""The offset in a dead letter of a box: a tuple of an arc is no record of a source."""

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "DeadLetter",
    "namespace": "errata",
    "fields": [
        {"name": "task", "type": "string"},
        {"name": "attempt", "type": "long"},
        {"name": "epoch", "type": "long"},
        {"name": "reason", "type": "string"},
        {"name": "detail", "type": "string"},
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "time_ms", "type": "long"},
        {"name": "key", "type": ["null", "bytes"]},
        {"name": "value", "type": ["null", "bytes"]},
    ],
}
_PARSED = fastavro.parse_schema(SCHEMA)
_PLACE = re.compile(r"(?:(?P<topic>.+):)?(?P<partition>[0-9]+):(?P<offset>-?[0-9]+)", re.ASCII)


class PlaceError(ErrataError):
    """A text does not name the place of a record."""


class DeadLetterError(ErrataError):
    """A record of the dead-letter topic is not a dead letter."""


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of a record in a user's topic.

    Args:
        topic: The topic; "" if the text does not name it.
        partition: The partition.
        offset: The offset; `NO_RECORD` in a dead letter of a box.

    Example:
        >>> RecordPlace.parse("trades:0:17"), str(RecordPlace("trades", 0, 17))
        (RecordPlace(topic='trades', partition=0, offset=17), 'trades:0:17')
        >>> RecordPlace.parse("0:17")
        RecordPlace(topic='', partition=0, offset=17)
    """

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> RecordPlace:
        """Parse ``PARTITION:OFFSET`` or ``TOPIC:PARTITION:OFFSET``.

        Raises:
            PlaceError: If it is neither.
        """
        match = _PLACE.fullmatch(text)
        if match is None:
            raise PlaceError(f"{text!r} needs the form PARTITION:OFFSET, as 0:17")
        return cls(match["topic"] or "", int(match["partition"]), int(match["offset"]))

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True)
class DeadLetter:
    """One refused record.

    Args:
        task: The task that refused it.
        attempt: The task's attempt.
        epoch: The epoch in which it was refused.
        reason: One of a few kinds, for counting.
        detail: What was needed and what was found.
        topic: The record's topic; of a tuple, the topic of its arc.
        partition: The record's partition; of a tuple, the task's.
        offset: The record's offset; of a tuple, `NO_RECORD`.
        time_ms: The record timestamp; of a tuple, about when its epoch was stamped.
        key: The record's key, verbatim; of a tuple, its key on its arc.
        value: The record's value, verbatim; of a tuple, an insert of it; None of a missing result.
    """

    task: str
    attempt: int
    epoch: int
    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> RecordPlace:
        """The place of the refused record."""
        return RecordPlace(self.topic, self.partition, self.offset)

    @property
    def is_of_box(self) -> bool:
        """Whether a box refused it."""
        return self.offset == NO_RECORD


def encode(dead_letter: DeadLetter) -> bytes:
    """Return the Avro body of a dead letter."""
    return avro_body.write(vars(dead_letter), _PARSED)


def decode(body: bytes) -> DeadLetter:
    """Read the Avro body of a dead letter.

    Raises:
        DeadLetterError: If the bytes are no dead letter.
    """
    try:
        return DeadLetter(**avro_body.read(body, _PARSED))
    except BodyError as error:
        raise DeadLetterError(f"not a dead letter: {error}") from error


def decode_value(value: bytes | None) -> DeadLetter | None:
    """Return the dead letter in a framed value; None if it holds none."""
    try:
        return decode((value or b"")[framing.HEAD_BYTES :])
    except DeadLetterError:
        return None
