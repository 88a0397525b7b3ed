"""The largest record that may be produced, checked before anything is queued."""

from __future__ import annotations

from collections.abc import Sequence

from errata.schemas.errors import ErrataError

LARGEST = 1_000_000
"""Default limit of a record's key and value in bytes: below the brokers' own default."""


class RecordTooLargeError(ErrataError):
    """A record is larger than the cluster accepts; none of its batch was produced.

    Attributes:
        topic: Where it should have gone.
        index: Its place in the batch.
    """

    def __init__(self, topic: str, *, index: int, size: int, limit: int) -> None:
        self.topic, self.index, self.size, self.limit = topic, index, size, limit
        super().__init__(
            f"record {index} of a batch for topic '{topic}' has {size} bytes, but at most {limit} "
            "are taken; make it smaller, or raise message.max.bytes of the client and "
            "max.message.bytes of the topic"
        )


def check_sizes(
    topic: str,
    *,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    limit: int = LARGEST,
) -> None:
    """Raise for the first record whose key and value together exceed `limit` bytes.

    Raises:
        RecordTooLargeError: If there is one.
    """
    largest = sum(max(map(len, filter(None, side)), default=0) for side in (keys, values))
    if largest <= limit:
        return
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        size = len(key or b"") + len(value or b"")
        if size > limit:
            raise RecordTooLargeError(topic, index=index, size=size, limit=limit)
