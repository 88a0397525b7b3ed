"""A sweeper in the process of its reader: the task queries it without a topic round trip."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import polars as pl

from errata.processors.boxes.replay import Ask
from errata.processors.tasks.replay_client import ReplayRefusedError
from errata.sweepers.ranges import HistoryGoneError
from errata.sweepers.sweeper import Sweeper


class Beside:
    """Answers replay requests from the sweepers of the same process.

    Args:
        sweepers: By name of the connection point and partition.
        partition: That of the asking task.
    """

    def __init__(
        self, sweepers: Mapping[str, Mapping[int, Sweeper]], *, partition: int = 0
    ) -> None:
        self.sweepers, self.partition = sweepers, partition

    def answers(
        self, asks: Sequence[Ask], *, task: str, attempt: int, epoch: int
    ) -> Generator[bool, None, list[pl.DataFrame]]:
        """Yield until all answers have arrived, then return them in order."""
        found = []
        for ask in asks:
            sweepers = self.sweepers[ask.arc]
            asked = sweepers.values() if ask.everywhere else [sweepers[self.partition]]
            parts = []
            for sweeper in asked:
                try:
                    while (answer := sweeper.answer(ask.as_of, ask.ranges)) is None:
                        yield sweeper.follow()
                except HistoryGoneError as error:
                    raise ReplayRefusedError(
                        f"task {task} asked arc {ask.arc!r}: refused, {error}"
                    ) from error
                parts.append(answer)
            found.append(pl.concat(parts))
        return found
