"""Reads a partition to its end, as a new attempt does before it processes anything."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from errata.topics.cluster import Cluster, ClusterError, Reader, Records, TopicPartition


def catch_up(
    cluster: Cluster, reader: Reader, source: TopicPartition, *, limit_s: float = 30.0
) -> Iterator[Records]:
    """Yield records until the reader has passed the current end of the log.

    Control and aborted records take offsets without being returned, so the reader's position
    decides, not the last record. Records of the reader's other partitions are yielded too.

    Args:
        cluster: Tells the log's end.
        reader: Reads the partition, perhaps others.
        source: The partition.
        limit_s: An open transaction of another writer holds the end back; so long we wait.

    Raises:
        ClusterError: If the end is not reached in time.
    """
    end, deadline = cluster.end(source), monotonic() + limit_s
    while reader.position(source) < end:
        yield from reader.poll(timeout_s=0.1)
        if monotonic() > deadline and reader.position(source) < end:
            raise ClusterError(
                f"partition {source.partition} of topic '{source.topic}' was read to offset "
                f"{reader.position(source)}, but its end {end} was not reached within "
                f"{limit_s:g} s; a transaction may be open: see kafka-transactions"
            )
