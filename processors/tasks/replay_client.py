"""Where a task takes its questions: to sweepers over topics (DESIGN 7).

Requests and replies travel outside any transaction and carry (task, attempt, epoch); a reply to an
older question is ignored. All questions of one epoch travel together, one request a connection
point.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import fastavro
import polars as pl

from errata.processors.boxes.replay import Ask
from errata.processors.tasks.shared import Shared
from errata.schemas import framing
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

ASK_AGAIN_S = 2.0
"""After this long without a reply the question is put again: its sweeper may be a new one."""
BLOCK_BYTES = 700_000
"""A reply is cut into messages of about this size."""


Answering = Generator[bool, None, list[pl.DataFrame]]


class ReplayRefusedError(ErrataError):
    """A sweeper can't give a complete answer, and never gives a short one."""


class Desk(Protocol):
    """Answers questions about connection points."""

    def answers(self, asks: Sequence[Ask], *, task: str, attempt: int, epoch: int) -> Answering:
        """Yield until every answer is there, then return them in order."""


REQUEST: dict[str, Any] = {
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
    ],
}
REPLY: dict[str, Any] = {
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
    ],
}
_PARSED = {
    "Request": fastavro.parse_schema(REQUEST),
    "Reply": fastavro.parse_schema(REPLY),
}


def write(kind: str, content: dict[str, Any], *, schema_id: int) -> bytes:
    """Return a framed request or reply."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED[kind], content)
    return framing.frame([out.getvalue()], schema_id)[0]


def read(kind: str, value: bytes | None) -> dict[str, Any] | None:
    """Return a request or reply; None if it is not one."""
    if value is None or len(value) <= framing.HEAD_BYTES or value[0] != framing.MAGIC:
        return None
    try:
        found: Any = fastavro.schemaless_reader(
            io.BytesIO(value[framing.HEAD_BYTES :]), _PARSED[kind], None
        )
    except (ValueError, EOFError, IndexError, TypeError, StopIteration):
        return None
    return found  # type: ignore[no-any-return]


def pack(frame: pl.DataFrame) -> bytes:
    """Return a frame as bytes (Arrow IPC), 128-bit integers as decimals."""
    wide = [name for name, kind in frame.schema.items() if kind == pl.Int128]
    out = io.BytesIO()
    frame.with_columns(pl.col(wide).cast(pl.Decimal(38, 0))).write_ipc(out)
    return out.getvalue()


def unpack(block: bytes) -> pl.DataFrame:
    """Return the frame that `pack` wrote."""
    frame = pl.read_ipc(io.BytesIO(block))
    wide = [name for name, kind in frame.schema.items() if kind == pl.Decimal]
    return frame.with_columns(pl.col(name).to_physical() for name in wide)


@dataclass
class _Question:
    """One request under way, and what has come back.

    Two sweepers may answer, or one twice: blocks of different answers don't make one.
    """

    ask: Ask
    partition: int
    number: int
    sent_s: float
    patience_s: float = ASK_AGAIN_S
    blocks: dict[int, dict[int, bytes]] = field(default_factory=dict)
    whole: list[bytes] | None = None

    def add(self, answer: int, block: int, tuples: bytes, *, blocks: int) -> None:
        """Take in one block of an answer."""
        found = self.blocks.setdefault(answer, {})
        found[block] = tuples
        if len(found) == blocks:
            self.whole = [found[number] for number in range(blocks)]


class TopicDesk:
    """Asks sweepers in processes of their own, and waits for their replies.

    Args:
        shared: What the process shares.
        scope: Scope of the asking task; its replies come in the scope's replay topic.
        partition: Partition of the asking task and of its replies, and of the arcs it asks about
            unless it asks everywhere.
        clock_s: Says when to ask again.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        scope: str,
        partition: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shared, self.partition, self.clock_s = shared, partition, clock_s
        self.place = TopicPartition(shared.plan.replies(scope), partition)
        end = shared.cluster.end(self.place)
        self.reader = shared.cluster.reader({self.place: end})
        self.number = 0

    def answers(self, asks: Sequence[Ask], *, task: str, attempt: int, epoch: int) -> Answering:
        """Send the questions, wait for the answers."""
        me = {"task": task, "attempt": attempt, "epoch": epoch}
        questions = [
            self._send(ask, partition, me) for ask in asks for partition in self._partitions(ask)
        ]
        while any(q.whole is None for q in questions):
            yield False
            self._collect(questions, me)
            now = self.clock_s()
            questions = [
                self._send(q.ask, q.partition, me, patience_s=2 * q.patience_s)
                if q.whole is None and now - q.sent_s > q.patience_s
                else q
                for q in questions
            ]
        given = iter(questions)
        return [
            pl.concat(
                unpack(block) for _ in self._partitions(ask) for block in next(given).whole or []
            )
            for ask in asks
        ]

    def _partitions(self, ask: Ask) -> Sequence[int]:
        if not ask.everywhere:
            return (self.partition,)
        return range(self.shared.plan.partition_count(ask.arc))

    def _send(
        self, ask: Ask, partition: int, me: dict[str, Any], *, patience_s: float = ASK_AGAIN_S
    ) -> _Question:
        self.number += 1
        topic = self.shared.plan.requests(ask.arc)
        content = me | {
            "plan": self.shared.plan.fingerprint,
            "number": self.number,
            "as_of": ask.as_of,
            "partition": partition,
            "reply_topic": self.place.topic,
            "reply_partition": self.place.partition,
            "ranges": pack(ask.ranges),
        }
        schema_id = self.shared.registry.register(f"{topic}-value", REQUEST)
        self.shared.cluster.send(
            topic,
            partition=partition,
            key=None,
            value=write("Request", content, schema_id=schema_id),
        )
        return _Question(ask, partition, self.number, self.clock_s(), patience_s)

    def _collect(self, questions: list[_Question], me: dict[str, Any]) -> None:
        by_number = {q.number: q for q in questions}
        for records in self.reader.poll():
            for value in records.values:
                reply = read("Reply", value)
                if reply is None or any(reply[name] != me[name] for name in me):
                    continue  # of another life, or of an epoch that is done with
                question = by_number.get(reply["number"])
                if question is None:
                    continue
                if reply["refused"] is not None:
                    raise ReplayRefusedError(
                        f"task {me['task']} asked arc {question.ask.arc!r} as of epoch "
                        f"{question.ask.as_of}: refused, {reply['refused']}"
                    )
                place = reply["answer"], reply["block"]
                question.add(*place, reply["tuples"], blocks=reply["blocks"])

    def close(self) -> None:
        """Stop listening."""
        self.reader.close()
