"""Sends records to users' topics by hand, and waits until they can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from errata.topics.cluster import Cluster, ClusterError, TopicPartition

_LIMIT_S = 30.0


class Parcel(NamedTuple):
    """A record for one partition of a topic."""

    place: TopicPartition
    key: bytes | None
    value: bytes | None


def deliver(cluster: Cluster, records: Sequence[Parcel], *, limit_s: float = _LIMIT_S) -> list[int]:
    """Send records outside any transaction, and return the offset of each once it can be read.

    Args:
        cluster: The cluster to send to.
        records: The records, in the order that each partition is to have them.
        limit_s: How long they may take to become readable.

    Raises:
        ClusterError: If they can't be sent, or are not readable in time.
    """
    if not records:
        return []
    starts = {record.place: cluster.end(record.place) for record in records}
    for record in records:
        cluster.send(
            record.place.topic, partition=record.place.partition, key=record.key, value=record.value
        )
    cluster.flush()  # raises if a record is refused
    wanted: dict[Parcel, list[int]] = {}
    for number, record in enumerate(records):
        wanted.setdefault(record, []).append(number)
    left = Counter(records)
    offsets = [-1] * len(records)
    reader, deadline = cluster.reader(starts), monotonic() + limit_s
    try:
        while left.total():
            for found in reader.poll(timeout_s=0.1):
                rows = zip(found.offsets, found.keys, found.values, strict=True)
                for offset, key, value in rows:
                    record = Parcel(found.source, key, value)
                    if left[record]:  # another producer's equal record counts too
                        offsets[wanted[record][-left[record]]] = offset
                        left[record] -= 1
            if left.total() and monotonic() > deadline:
                place = next(record.place for record in left if left[record])
                raise ClusterError(
                    f"{left.total()} of {len(records)} records were sent but can't be read after "
                    f"{limit_s:g} s, the first in partition {place.partition} of topic "
                    f"'{place.topic}': a transaction of another producer may be open there"
                )
    finally:
        reader.close()
    return offsets
