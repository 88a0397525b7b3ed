"""The Kafka settings of each kind of topic (``docs/protocol.md#1-topics``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FOREVER_MS = 100 * 365 * DAY_MS
"""A retention at or above this counts as unlimited."""


@dataclass(frozen=True)
class TopicSpec:
    """A topic that a network needs.

    Args:
        name: Its name.
        partitions: Its partitions, exactly.
        config: Its settings; those not named are the broker's.
        least: Amounts that are enough for an existing topic, where `config` has more.
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, str] = field(default_factory=dict)


PASSING_MS = 7 * DAY_MS
"""How long an arc without history keeps its records."""


def passing(*, retention_ms: int = PASSING_MS) -> dict[str, str]:
    """Settings of an arc without history, or an exchange: records are deleted by age."""
    return _settings("delete", retention_ms=retention_ms, segment_ms=retention_ms // 4)


def connection_point(
    *, retention_ms: int, compaction_lag_ms: int = DAY_MS, delete_retention_ms: int = DAY_MS
) -> dict[str, str]:
    """Settings of a connection point: the last revision of each identity is kept.

    Args:
        retention_ms: keep + radius + lateness; at or above `FOREVER_MS` nothing is deleted by age.
        compaction_lag_ms: How old a record must be before a later one of its identity may push it
            out; longer than any reader may lag.
        delete_retention_ms: How long a tombstone stays; longer than the longest scan.
    """
    return _settings(
        "compact,delete", retention_ms=retention_ms, segment_ms=min(compaction_lag_ms, DAY_MS)
    ) | {
        "retention.bytes": "-1",
        "min.compaction.lag.ms": str(compaction_lag_ms),
        "delete.retention.ms": str(delete_retention_ms),
    }


def compacted() -> dict[str, str]:
    """Settings of progress, plan and schemas: the last record of each key is kept for ever."""
    return {
        "cleanup.policy": "compact",
        "segment.ms": str(HOUR_MS),
        "min.cleanable.dirty.ratio": "0.1",  # keeps short what every start reads
        "message.timestamp.type": "LogAppendTime",
    }


def upserts() -> dict[str, str]:
    """Settings of a sink of upserts: the last record of each identity is kept."""
    return {"cleanup.policy": "compact"}


def short() -> dict[str, str]:
    """Settings of replay requests and replies: deleted after an hour."""
    return _settings("delete", retention_ms=HOUR_MS, segment_ms=HOUR_MS // 4)


def dead_letters() -> dict[str, str]:
    """Settings of refused input: kept until someone deletes it."""
    return _settings("delete", retention_ms=FOREVER_MS, segment_ms=DAY_MS) | {
        "retention.bytes": "-1"
    }


def _settings(cleanup: str, *, retention_ms: int, segment_ms: int) -> dict[str, str]:
    return {
        "cleanup.policy": cleanup,
        "retention.ms": str(retention_ms if retention_ms < FOREVER_MS else -1),
        # The active segment is neither deleted nor compacted.
        "segment.ms": str(max(1000, min(segment_ms, DAY_MS))),
        # The record timestamp is the time of writing, never event time.
        "message.timestamp.type": "LogAppendTime",
    }
