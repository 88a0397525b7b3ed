"""The replay client: sends requests to sweepers, awaits replies (``docs/protocol.md#6-replay``).

Requests and replies travel outside any transaction and carry (task, attempt, epoch); a reply to an
older request is ignored. The queries of one step of an epoch are sent together: for each, one
request per partition.

An answer comes in parts, so that neither side holds a large one whole: a sweeper ends a reply that
gets too large, and says which ranges it covers up to which event time. What it leaves out is
requested next. A query may take the parts as they arrive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.boxes.replay import ReplayQuery, merged
from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.processors.wire.replay import BlockError, Reply, Request, Requester, pack, unpack
from errata.schemas import by_column
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields, physical
from errata.topics.cluster import TopicPartition

RESEND_S, LONGEST_RESEND_S = 2.0, 30.0
"""Without a reply in this time the request is sent again, then after twice that time, and so on:
another sweeper may have taken over, and sweepers drop requests that they can't answer for long."""
MOST_ANSWERS = 4
"""Incomplete answers to one request that are held; above it the oldest is dropped."""
PART_BYTES, SMALLEST_PART_BYTES = 8_000_000, 1_000_000
"""Size of the tuples that a task requests at once, and that it requests of one sweeper at least."""
RANGES_BYTES = 700_000
"""Size of the ranges of a request at most, unless there is only one."""


Fetch = Generator[bool, None, list[pl.DataFrame]]
"""Yields until every reply has arrived, then returns the answers, in the order of the queries."""


class ReplayRefusedError(ErrataError):
    """A sweeper can't give a complete reply; it never sends a partial one."""

    restart_helps = True


class ReplayClient(Protocol):
    """Fetches history from connection points.

    Attributes:
        foreign: Notes the records among the replies that no sweeper can have sent.
    """

    foreign: ForeignRecords

    def fetch(
        self, queries: Sequence[ReplayQuery], *, task: str, attempt: int, epoch: int
    ) -> Fetch:
        """Yield until every answer has arrived; return what no query has taken, in order."""


class Gathered:
    """The parts of one sweeper's answer to a query.

    Args:
        query: The query.
        arc: The arc whose tuples are requested.
    """

    def __init__(self, query: ReplayQuery, arc: Arc) -> None:
        self.query, self.left = query, merged(query.ranges)
        """The ranges that no part covers yet; they do not overlap, so neither do the parts."""
        self.parts = [pl.DataFrame(schema=physical(arc.fields))]
        self.is_whole = False

    @property
    def answer(self) -> pl.DataFrame:
        """The tuples that the query has not taken."""
        return pl.concat(self.parts)

    def add(self, tuples: pl.DataFrame, covered: int, upto_ms: int) -> None:
        """Add the next part.

        Args:
            tuples: Its tuples.
            covered: How many ranges of `left`, from the first, it covers.
            upto_ms: Of these it covers the event times before this.
        """
        if self.query.take is not None:
            self.query.take(tuples)
        else:
            self.parts.append(tuples)
        rest = self.left[:covered]
        rest = by_column.kept(rest, rest["to_ms"] > upto_ms)
        if rest.height:
            from_ms = pl.max_horizontal("from_ms", pl.lit(upto_ms)).alias("from_ms")
            rest = rest.with_columns(from_ms)
        self.left = rest.vstack(self.left[covered:])
        self.is_whole = self.left.is_empty()


def part_bytes(sweepers: int) -> int:
    """Return how large a part is requested of each sweeper, in bytes, if there are so many."""
    return max(PART_BYTES // sweepers, SMALLEST_PART_BYTES)


@dataclass(eq=False)
class _OpenRequest:
    """One open request and the blocks of its replies.

    Two sweepers may answer, or one may answer twice: blocks of different answers don't mix. The
    first complete answer counts, to whichever sending of the request.
    """

    request: Request
    gathered: Gathered
    count: int
    sent_s: float
    resend_after_s: float = RESEND_S
    answers: dict[int, dict[int, pl.DataFrame]] = field(default_factory=dict)
    is_answered: bool = False

    def add(self, reply: Reply, fields: Fields) -> str:
        """Add a block of an answer; return why it is ignored if no sweeper can have sent it."""
        if not 0 <= reply.block < reply.blocks:
            return f"block {reply.block} of {reply.blocks}"
        if not replay.ALL <= reply.covered <= self.count:
            return f"an answer to {reply.covered} of {self.count} ranges"
        try:
            tuples = unpack(reply.tuples)
        except BlockError as error:
            return str(error)
        if dict(tuples.schema) != physical(fields):
            arc = self.gathered.query.arc
            return f"a reply with other fields than those of arc {arc!r}"
        known = self.answers.setdefault(reply.answer, {})
        known[reply.block] = tuples
        if len(known) == reply.blocks:
            whole = pl.concat(known[number] for number in range(reply.blocks))
            self.answers.clear()
            covered = self.count if reply.covered == replay.ALL else reply.covered
            self.gathered.add(whole, covered, reply.upto_ms)
            self.is_answered = True
        elif len(self.answers) > MOST_ANSWERS:
            del self.answers[next(iter(self.answers))]
        return ""


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
        self.number, self.foreign = 0, ForeignRecords()

    def fetch(
        self, queries: Sequence[ReplayQuery], *, task: str, attempt: int, epoch: int
    ) -> Fetch:
        """Send the requests, wait for the answers, and request what they leave out."""
        arcs, requester = self.shared.plan.topology.arcs, Requester(task, attempt, epoch)
        gathered = [
            {number: Gathered(query, arcs[query.arc]) for number in self._partitions(query)}
            for query in queries
        ]
        most_bytes = part_bytes(sum(map(len, gathered)))
        requests = [
            self._open(each, partition, requester, most_bytes)
            for of_query in gathered
            for partition, each in of_query.items()
        ]
        while requests:
            yield False
            done = self._collect(requests, requester)
            requests = [each for each in requests if each not in done]
            for each in done:
                if not each.gathered.is_whole:
                    partition = each.request.partition
                    requests.append(self._open(each.gathered, partition, requester, most_bytes))
            now = self.clock_s()
            for each in requests:
                if now - each.sent_s > each.resend_after_s:
                    self._send(each.request, each.gathered.query.arc)
                    each.sent_s = now
                    each.resend_after_s = min(2 * each.resend_after_s, LONGEST_RESEND_S)
        return [pl.concat(each.answer for each in of_query.values()) for of_query in gathered]

    def _partitions(self, query: ReplayQuery) -> Sequence[int]:
        if not query.everywhere:
            return (self.partition,)
        return range(self.shared.plan.placement.partitions[query.arc])

    def _open(
        self, gathered: Gathered, partition: int, requester: Requester, most_bytes: int
    ) -> _OpenRequest:
        """Request what is left of an answer, or as many of its ranges as fit into a request."""
        self.number += 1
        query = gathered.query
        ranges, count = _packed(gathered.left)
        request = Request(
            plan=self.shared.plan.fingerprint,
            requester=requester,
            number=self.number,
            as_of=query.as_of,
            partition=partition,
            reply_topic=self.place.topic,
            reply_partition=self.place.partition,
            ranges=ranges,
            most_bytes=most_bytes,
        )
        self._send(request, query.arc)
        return _OpenRequest(request, gathered, count, self.clock_s())

    def _send(self, request: Request, arc: str) -> None:
        topic = self.shared.plan.deployment.requests(arc)
        schema_id = self.shared.registry.register(f"{topic}-value", replay.REQUEST_SCHEMA)
        value = replay.encode(request, schema_id=schema_id)
        self.shared.cluster.send(topic, partition=request.partition, key=None, value=value)

    def _collect(
        self, requests: Sequence[_OpenRequest], requester: Requester
    ) -> list[_OpenRequest]:
        """Read replies; return the requests whose answer is complete now."""
        waiting, done = {each.request.number: each for each in requests}, []
        for records in self.reader.poll():
            for offset, value in zip(records.offsets, records.values, strict=True):
                reply = replay.decode_reply(value)
                if reply is None:
                    self.foreign.add(self.place, offset, "a record that is no reply")
                    continue
                if reply.requester != requester:
                    continue  # of another attempt, or of an epoch that is done
                request = waiting.get(reply.number)
                if request is None:
                    continue
                query = request.gathered.query
                if reply.refused is not None:
                    raise ReplayRefusedError(
                        f"task {requester.task} requested tuples of arc {query.arc!r} as "
                        f"of epoch {query.as_of}, and the sweeper refused: {reply.refused}"
                    )
                fields = self.shared.plan.topology.arcs[query.arc].fields
                if fault := request.add(reply, fields):
                    self.foreign.add(self.place, offset, fault)
                elif request.is_answered:
                    done.append(waiting.pop(reply.number))
        return done

    def close(self) -> None:
        """Stop listening."""
        self.reader.close()


def _packed(ranges: pl.DataFrame) -> tuple[bytes, int]:
    """Return the first ranges, packed for a request, and how many they are."""
    count = ranges.height
    while len(packed := pack(ranges[:count])) > RANGES_BYTES and count > 1:
        count = max(1, min(count - 1, count * RANGES_BYTES // len(packed)))
    return packed, count
