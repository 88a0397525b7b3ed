"""The records of a topic between two times, in the order of their timestamps.

Used by `errata local --from ... --until ...` to replay a day of a live source without changing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import numpy as np

from errata.schemas.errors import ErrataError
from errata.topics.cluster import Cluster, TopicPartition
from errata.topics.registry import Registry, UnknownSchemaError

LIMIT_S = 60.0
"""Without a record for this long, reading ends with an error that names the slow partition."""
_PAUSE_S = 0.01

Recorded = tuple[list[bytes | None], list[bytes | None]]
"""Keys and values."""


class StuckReadError(ErrataError):
    """A partition can't be read to its end."""


@dataclass(frozen=True)
class OverlayRegistry:
    """A registry that reads another registry first, and never writes there.

    Args:
        overlay: Stores the schemas that are registered.
        base: Read first, never written.
    """

    overlay: Registry
    base: Registry

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema, which is registered if it is new."""
        return self.overlay.register(subject, schema)

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the schema of an id."""
        try:
            return self.base.schema(schema_id)
        except UnknownSchemaError:
            return self.overlay.schema(schema_id)

    def latest(self, subject: str) -> tuple[int, Any] | None:
        """Return a subject's newest id and schema; None if it has none."""
        return self.base.latest(subject)


def recorded(
    cluster: Cluster, topic: str, *, from_ms: int | None, until_ms: int | None
) -> Iterator[Recorded]:
    """Yield the records of a topic in pieces, oldest first.

    Records of one partition keep their order.

    Args:
        cluster: The cluster of the topic.
        topic: The topic.
        from_ms: Record timestamp to begin at; None for the start of the log.
        until_ms: Record timestamp to end before; None for the current end of the log.

    Raises:
        StuckReadError: If no record arrives for a minute before a partition's end is reached.
    """
    places = [TopicPartition(topic, p) for p in range(cluster.partitions(topic))]
    ends = {
        p: cluster.end(p) if until_ms is None else cluster.offset_at(p, until_ms) for p in places
    }
    starts = {p: 0 if from_ms is None else cluster.offset_at(p, from_ms) for p in places}
    left = {p: _Waiting() for p in places if starts[p] < ends[p]}
    if not left:
        return
    reader = cluster.reader({p: starts[p] for p in left})
    last_record_s = monotonic()
    try:
        while left:
            batches = reader.poll()
            for records in batches:
                if records.source in left:
                    count = int(np.searchsorted(records.offsets, ends[records.source]))
                    left[records.source].add(
                        records.times_ms[:count], records.keys[:count], records.values[:count]
                    )
            reading = [p for p in left if reader.position(p) < ends[p]]
            horizon = min((left[p].reached for p in reading), default=None)
            yield from _piece(left, horizon)
            left = {p: waiting for p, waiting in left.items() if p in reading or waiting.values}
            last_record_s = monotonic() if batches else last_record_s
            if monotonic() - last_record_s > LIMIT_S:
                behind = ", ".join(f"{p.partition} at {reader.position(p)}" for p in reading)
                raise StuckReadError(
                    f"topic {topic!r} could not be read to its end: no record arrived for "
                    f"{LIMIT_S:g} s, and partition {behind} has more; a transaction may be open "
                    "there: try again later"
                )
            if not batches and left:
                sleep(_PAUSE_S)
    finally:
        reader.close()


class _Waiting:
    """Records of one partition that wait for those of others; their times never fall."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.reached = -(2**62)

    def add(
        self, times: Sequence[int], keys: list[bytes | None], values: list[bytes | None]
    ) -> None:
        rising = np.maximum.accumulate([self.reached, *times])[1:]
        self.times += rising.tolist()
        self.keys += keys
        self.values += values
        self.reached = self.times[-1] if self.times else self.reached

    def take(self, horizon: int | None) -> tuple[list[int], Recorded]:
        """Return the records no later than a time; None for all."""
        count = len(self.times)
        if horizon is not None:
            count = int(np.searchsorted(self.times, horizon, side="right"))
        taken = self.times[:count], (self.keys[:count], self.values[:count])
        del self.times[:count], self.keys[:count], self.values[:count]
        return taken


def _piece(left: dict[TopicPartition, _Waiting], horizon: int | None) -> Iterator[Recorded]:
    """Yield the records of all partitions up to a time, in the order of their times."""
    parts = [waiting.take(horizon) for waiting in left.values()]
    times = [time for part, _ in parts for time in part]
    if times:
        order = np.argsort(times, kind="stable").tolist()
        keys = [key for _, (part, _) in parts for key in part]
        values = [value for _, (_, part) in parts for value in part]
        yield [keys[i] for i in order], [values[i] for i in order]
