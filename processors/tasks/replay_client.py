"""The replay client: sends requests to sweepers, awaits replies (``docs/protocol.md#6-replay``).

Requests and replies travel outside any transaction and carry (task, attempt, epoch); a reply to an
older request is ignored. All requests of one epoch are sent together: for each query, one
request per partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from errata.processors.boxes.replay import ReplayQuery
from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.processors.wire.replay import BlockError, Reply, Request, Requester, pack, unpack
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields, physical
from errata.topics.cluster import TopicPartition

RESEND_S, LONGEST_RESEND_S = 2.0, 30.0
"""Without a reply in this time the request is sent again, then after twice that time, and so on:
another sweeper may have taken over, and sweepers drop requests that they can't answer for long."""
MOST_ANSWERS = 4
"""Incomplete answers to one request that are held; above it the oldest is dropped."""


Fetch = Generator[bool, None, list[pl.DataFrame]]
"""Yields until every reply has arrived, then returns the answers, in the order of the requests."""


class ReplayRefusedError(ErrataError):
    """A sweeper can't give a complete reply; it never sends a partial one."""


class ReplayClient(Protocol):
    """Fetches history from connection points."""

    def fetch(
        self, queries: Sequence[ReplayQuery], *, task: str, attempt: int, epoch: int
    ) -> Fetch:
        """Yield until every answer has arrived, then return them in order."""


@dataclass
class _OpenRequest:
    """One open request and the blocks of its replies.

    Two sweepers may answer, or one may answer twice: blocks of different answers don't mix. The
    first complete answer counts, to whichever sending of the request.
    """

    request: Request
    query: ReplayQuery
    sent_s: float
    resend_after_s: float = RESEND_S
    answers: dict[int, dict[int, pl.DataFrame]] = field(default_factory=dict)
    whole: list[pl.DataFrame] | None = None

    def add(self, reply: Reply, fields: Fields) -> None:
        """Add one block of an answer; one that does not hold the arc's fields is ignored."""
        if self.whole is not None or not 0 <= reply.block < reply.blocks:
            return
        try:
            tuples = unpack(reply.tuples)
        except BlockError:
            return
        if dict(tuples.schema) != physical(fields):
            return
        known = self.answers.setdefault(reply.answer, {})
        known[reply.block] = tuples
        if len(known) == reply.blocks:
            self.whole = [known[number] for number in range(reply.blocks)]
            self.answers.clear()
        elif len(self.answers) > MOST_ANSWERS:
            del self.answers[next(iter(self.answers))]


class TopicReplayClient:
    """Sends requests to sweepers over topics, and waits for their replies.

    Args:
        shared: State shared by the tasks of the process.
        scope: Scope of the requesting task; its replies arrive in the scope's replay topic.
        partition: Partition of the requesting task and of its replies; also of the arcs whose
            history it requests, unless a request is for all partitions.
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

    def fetch(
        self, queries: Sequence[ReplayQuery], *, task: str, attempt: int, epoch: int
    ) -> Fetch:
        """Send the requests, then wait for the answers."""
        requester = Requester(task, attempt, epoch)
        requests = [
            self._open(query, partition, requester)
            for query in queries
            for partition in self._partitions(query)
        ]
        while any(each.whole is None for each in requests):
            yield False
            self._collect(requests, requester)
            now = self.clock_s()
            for each in requests:
                if each.whole is None and now - each.sent_s > each.resend_after_s:
                    self._send(each.request, each.query.arc)
                    each.sent_s = now
                    each.resend_after_s = min(2 * each.resend_after_s, LONGEST_RESEND_S)
        complete = iter(requests)
        return [
            pl.concat(
                block for _ in self._partitions(query) for block in next(complete).whole or []
            )
            for query in queries
        ]

    def _partitions(self, query: ReplayQuery) -> Sequence[int]:
        if not query.everywhere:
            return (self.partition,)
        return range(self.shared.plan.placement.partitions[query.arc])

    def _open(self, query: ReplayQuery, partition: int, requester: Requester) -> _OpenRequest:
        self.number += 1
        request = Request(
            plan=self.shared.plan.fingerprint,
            requester=requester,
            number=self.number,
            as_of=query.as_of,
            partition=partition,
            reply_topic=self.place.topic,
            reply_partition=self.place.partition,
            ranges=pack(query.ranges),
        )
        self._send(request, query.arc)
        return _OpenRequest(request, query, self.clock_s())

    def _send(self, request: Request, arc: str) -> None:
        topic = self.shared.plan.deployment.requests(arc)
        schema_id = self.shared.registry.register(f"{topic}-value", replay.REQUEST_SCHEMA)
        value = replay.encode(request, schema_id=schema_id)
        self.shared.cluster.send(topic, partition=request.partition, key=None, value=value)

    def _collect(self, requests: list[_OpenRequest], requester: Requester) -> None:
        by_number = {each.request.number: each for each in requests}
        for records in self.reader.poll():
            for value in records.values:
                reply = replay.decode_reply(value)
                if reply is None or reply.requester != requester:
                    continue  # of another attempt, or of an epoch that is done
                request = by_number.get(reply.number)
                if request is None:
                    continue
                if reply.refused is not None:
                    raise ReplayRefusedError(
                        f"task {requester.task} requested tuples of arc {request.query.arc!r} as "
                        f"of epoch {request.query.as_of}, and the sweeper refused: {reply.refused}"
                    )
                request.add(reply, self.shared.plan.topology.arcs[request.query.arc].fields)

    def close(self) -> None:
        """Stop listening."""
        self.reader.close()
