"""A sweeper as a process of its own: requests come in, and replies go out, over topics.

Replies are complete or refused, never short, and go out in blocks of many tuples, outside any
transaction; whoever asked knows its own by (task, attempt, epoch, number).
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from errata.processors.tasks import replay_client as desk
from errata.processors.tasks.shared import Shared
from errata.sweepers.ranges import HistoryGoneError
from errata.sweepers.sweeper import Sweeper
from errata.topics.cluster import TopicPartition

LOOK_BACK = 100
"""Requests before the start that are looked at: they may have come while nobody listened."""


@dataclass(frozen=True)
class Waiting:
    """A request that can't be answered yet."""

    content: dict[str, Any]
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
        """Follow and answer for ever; yields whether there was something to do."""
        while True:
            busy = self.sweeper.follow()
            self._listen()
            yield self._answer() or busy

    def _listen(self) -> None:
        for records in self.reader.poll():
            for value in records.values:
                content = desk.read("Request", value)
                # Who goes by another plan sees other frontiers.
                if content is not None and content["plan"] == self.shared.plan.fingerprint:
                    self.waiting.append(Waiting(content, desk.unpack(content["ranges"])))

    def _answer(self) -> bool:
        """Answer what can be answered; forget what was asked by a life that is over."""
        view, left = self.shared.view, []
        for request in self.waiting:
            content = request.content
            if content["attempt"] < view.of(content["task"]).attempt:
                continue
            try:
                tuples = self.sweeper.answer(content["as_of"], request.ranges)
            except HistoryGoneError as error:
                self._reply(content, [b""], refused=str(error))
                continue
            if tuples is None:
                left.append(request)
            else:
                self._reply(content, list(blocks(tuples)))
        answered = len(left) < len(self.waiting)
        self.waiting = left
        return answered

    def _reply(
        self, request: dict[str, Any], parts: list[bytes], *, refused: str | None = None
    ) -> None:
        topic = request["reply_topic"]
        schema_id = self.shared.registry.register(f"{topic}-value", desk.REPLY)
        me = {name: request[name] for name in ("task", "attempt", "epoch", "number")}
        me["answer"] = secrets.randbits(62)
        for number, part in enumerate(parts):
            content = me | {
                "block": number,
                "blocks": len(parts),
                "refused": refused,
                "tuples": part,
            }
            self.shared.cluster.send(
                topic,
                partition=request["reply_partition"],
                key=None,
                value=desk.write("Reply", content, schema_id=schema_id),
            )

    def close(self) -> None:
        """Stop listening."""
        self.reader.close()
        self.sweeper.close()


def blocks(tuples: pl.DataFrame) -> Iterator[bytes]:
    """Yield a reply's tuples in parts of about `desk.BLOCK_BYTES`; at least one part."""
    size = max(1, int(tuples.estimated_size()))
    rows = max(1, desk.BLOCK_BYTES * tuples.height // size)
    for start in range(0, max(1, tuples.height), rows):
        yield desk.pack(tuples.slice(start, rows))
