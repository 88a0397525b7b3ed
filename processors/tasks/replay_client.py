"""The replay client: sends requests to sweepers, awaits replies (``docs/protocol.md#6-replay``).

Requests and replies travel outside any transaction and carry (task, attempt, epoch); a reply to an
older request is ignored. All questions of one epoch are sent together: one request for each
question and partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from errata.processors.boxes.replay import Ask
from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.processors.wire.replay import Asker, Reply, Request, pack, unpack
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

ASK_AGAIN_S = 2.0
"""Without a reply in this time the request is sent again: another sweeper may have taken over."""


Answering = Generator[bool, None, list[pl.DataFrame]]


class ReplayRefusedError(ErrataError):
    """A sweeper can't give a complete reply; it never sends a partial one."""


class ReplayClient(Protocol):
    """Fetches history from connection points."""

    def answers(self, asks: Sequence[Ask], *, task: str, attempt: int, epoch: int) -> Answering:
        """Yield until every answer has arrived, then return them in order."""


@dataclass
class _Question:
    """One open request and the blocks of its replies.

    Two sweepers may answer, or one may answer twice: blocks of different answers don't mix.
    """

    ask: Ask
    partition: int
    number: int
    sent_s: float
    patience_s: float = ASK_AGAIN_S
    blocks: dict[int, dict[int, bytes]] = field(default_factory=dict)
    whole: list[bytes] | None = None

    def add(self, reply: Reply) -> None:
        """Add one block of an answer."""
        known = self.blocks.setdefault(reply.answer, {})
        known[reply.block] = reply.tuples
        if len(known) == reply.blocks:
            self.whole = [known[number] for number in range(reply.blocks)]


class TopicReplayClient:
    """Sends requests to sweepers over topics, and waits for their replies.

    Args:
        shared: State shared by the tasks of the process.
        scope: Scope of the asking task; its replies arrive in the scope's replay topic.
        partition: Partition of the asking task and of its replies; also of the arcs that it asks
            about, unless it asks all their partitions.
        clock_s: Clock in s; it times repeated requests.
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
        self.place = TopicPartition(
            shared.plan.deployment.replies(shared.plan.topology.scopes[scope]), partition
        )
        end = shared.cluster.end(self.place)
        self.reader = shared.cluster.reader({self.place: end})
        self.number = 0

    def answers(self, asks: Sequence[Ask], *, task: str, attempt: int, epoch: int) -> Answering:
        """Send the requests, then wait for the answers."""
        asker = Asker(task, attempt, epoch)
        questions = [
            self._send(ask, partition, asker) for ask in asks for partition in self._partitions(ask)
        ]
        while any(q.whole is None for q in questions):
            yield False
            self._collect(questions, asker)
            now = self.clock_s()
            questions = [
                self._send(q.ask, q.partition, asker, patience_s=2 * q.patience_s)
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
        return range(self.shared.plan.placement.partitions[ask.arc])

    def _send(
        self, ask: Ask, partition: int, asker: Asker, *, patience_s: float = ASK_AGAIN_S
    ) -> _Question:
        self.number += 1
        topic = self.shared.plan.deployment.requests(ask.arc)
        request = Request(
            plan=self.shared.plan.fingerprint,
            asker=asker,
            number=self.number,
            as_of=ask.as_of,
            partition=partition,
            reply_topic=self.place.topic,
            reply_partition=self.place.partition,
            ranges=pack(ask.ranges),
        )
        schema_id = self.shared.registry.register(f"{topic}-value", replay.REQUEST_SCHEMA)
        value = replay.encode(request, schema_id=schema_id)
        self.shared.cluster.send(topic, partition=partition, key=None, value=value)
        return _Question(ask, partition, self.number, self.clock_s(), patience_s)

    def _collect(self, questions: list[_Question], asker: Asker) -> None:
        by_number = {q.number: q for q in questions}
        for records in self.reader.poll():
            for value in records.values:
                reply = replay.decode_reply(value)
                if reply is None or reply.asker != asker:
                    continue  # of another attempt, or of an epoch that is done
                question = by_number.get(reply.number)
                if question is None:
                    continue
                if reply.refused is not None:
                    raise ReplayRefusedError(
                        f"task {asker.task} asked arc {question.ask.arc!r} as of epoch "
                        f"{question.ask.as_of}: refused, {reply.refused}"
                    )
                question.add(reply)

    def close(self) -> None:
        """Stop listening."""
        self.reader.close()
