"""The timestamps of messages, looked up when somebody asks: most readers never do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import overload

from confluent_kafka import Message


class Times(Sequence[int]):
    """Timestamps in ms.

    Args:
        messages: What they are of.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._messages)

    def __iter__(self) -> Iterator[int]:
        """Return all of them, in order."""
        return map(itemgetter(1), map(Message.timestamp, self._messages))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Times: ...
    def __getitem__(self, index: int | slice) -> int | Times:
        """Return one, or some."""
        if isinstance(index, slice):
            return Times(self._messages[index])
        return int(self._messages[index].timestamp()[1])
