"""A sweeper as its own process: it reads requests from a topic and writes replies to one.

A reply is complete or a refusal, never partial. It is sent in blocks of many tuples, outside any
transaction. The requester recognises its replies by (task, attempt, epoch, number).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import polars as pl

from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.processors.wire.replay import BlockError, Reply, Request, pack, unpack
from errata.sweepers.ranges import HistoryGoneError
from errata.sweepers.sweeper import Sweeper
from errata.topics.cluster import TopicPartition

log = logging.getLogger("errata")

LOOK_BACK = 100
"""Requests before the log's end that it reads at startup: they may have come while it was down."""


@dataclass(frozen=True)
class Waiting:
    """A request that can't be answered yet."""

    request: Request
    ranges: pl.DataFrame


class Service:
    """Serves the requests to one sweeper.

    Args:
        shared: What its process shares.
        sweeper: Whose copy it answers from.
    """

    def __init__(self, shared: Shared, sweeper: Sweeper) -> None:
        self.shared, self.sweeper, self.name = shared, sweeper, sweeper.name
        topic = shared.plan.requests(sweeper.arc.name)
        self.place = TopicPartition(topic, sweeper.partition)
        start = max(0, shared.cluster.end(self.place) - LOOK_BACK)
        self.reader = shared.cluster.reader({self.place: start})
        self.waiting: list[Waiting] = []

    def life(self) -> Generator[bool, None, None]:
        """Follow the arc and answer requests for ever; yields whether there was work."""
        while True:
            busy = self.sweeper.follow()
            self._listen()
            yield self._answer() or busy

    def _listen(self) -> None:
        for records in self.reader.poll():
            for value in records.values:
                request = replay.decode_request(value)
                # A task with another plan has other frontiers.
                if request is None or request.plan != self.shared.plan.fingerprint:
                    continue
                try:
                    ranges = unpack(request.ranges)
                except BlockError as error:
                    log.warning("%s: a request of %s: %s", self.name, request.asker.task, error)
                    continue
                self.waiting.append(Waiting(request, ranges))

    def _answer(self) -> bool:
        """Answer every request that can be answered; drop the requests of fenced attempts."""
        view, left = self.shared.view, []
        for one in self.waiting:
            request = one.request
            if request.asker.attempt < view.of(request.asker.task).attempt:
                continue
            try:
                tuples = self.sweeper.answer(request.as_of, one.ranges)
            except HistoryGoneError as error:
                self._reply(request, [b""], refused=str(error))
                continue
            if tuples is None:
                left.append(one)
            else:
                self._reply(request, list(blocks(tuples)))
        answered = len(left) < len(self.waiting)
        self.waiting = left
        return answered

    def _reply(self, request: Request, parts: list[bytes], *, refused: str | None = None) -> None:
        topic, answer = request.reply_topic, secrets.randbits(62)
        schema_id = self.shared.registry.register(f"{topic}-value", replay.REPLY_SCHEMA)
        for number, part in enumerate(parts):
            reply = Reply(
                request.asker, request.number, answer, number, len(parts), refused, tuples=part
            )
            self.shared.cluster.send(
                topic,
                partition=request.reply_partition,
                key=None,
                value=replay.encode(reply, schema_id=schema_id),
            )

    def close(self) -> None:
        """Stop reading requests."""
        self.reader.close()
        self.sweeper.close()


def blocks(tuples: pl.DataFrame) -> Iterator[bytes]:
    """Yield a reply's tuples in parts of about `replay.BLOCK_BYTES`; at least one part."""
    size = max(1, int(tuples.estimated_size()))
    rows = max(1, replay.BLOCK_BYTES * tuples.height // size)
    for start in range(0, max(1, tuples.height), rows):
        yield pack(tuples.slice(start, rows))
