"""Follows an arc's revisions epoch by epoch, as epochs become complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import sleep

import polars as pl

from errata.observe.network_progress import Progress
from errata.processors.arcs.arc_topic import ArcCodec, ArcInput
from errata.processors.reports.progress_view import settled
from errata.schemas import revisions as frames

_PAUSE_S = 0.02


class Tail:
    """Reads all partitions of an arc, and returns the epochs that are complete in all of them.

    Args:
        progress: The reports of the tasks.
        codec: The codec of the arc.
        from_beginning: Whether to begin with the content of the topic instead of new epochs.
    """

    def __init__(self, progress: Progress, codec: ArcCodec, *, from_beginning: bool) -> None:
        self.progress = progress
        arc = codec.arc.name
        starts = [0] * progress.plan.partition_count(arc)
        done, starts = (-1, starts) if from_beginning else settled(progress, arc)
        self.inputs = [
            ArcInput(progress, codec, partition, done=done, resume=start)
            for partition, start in enumerate(starts)
        ]

    def step(self) -> pl.DataFrame | None:
        """Return the revisions that have become complete; None if nothing has changed.

        They are whole epochs in order, with deletes first in each epoch: a tuple that moves between
        partitions is deleted before it is inserted, so that the revisions can be folded one by one.
        """
        self.progress.poll()
        read = sum(source.poll() for source in self.inputs)
        before = self.done
        frontier = self.frontier()
        if frontier <= before:
            return self.inputs[0].codec.empty if read else None
        taken = [
            source.take(frontier).with_columns(pl.lit(source.place.partition).alias("partition"))
            for source in self.inputs
        ]
        for source in self.inputs:
            source.drop(frontier)
        there = pl.col("op") != frames.DELETE
        return pl.concat(taken).sort("epoch", there, "partition", "offset", maintain_order=True)

    @property
    def done(self) -> int:
        """The last epoch that has been returned."""
        return self.inputs[0].done

    def frontier(self) -> int:
        """Return the last epoch that is complete in all partitions."""
        return min(source.frontier() for source in self.inputs)

    def upto_now(self) -> Iterator[pl.DataFrame]:
        """Yield the revisions that are complete now, then end."""
        places = [self.progress.complete(s.codec.arc.name, s.place.partition) for s in self.inputs]
        goal = min(epoch for epoch, _ in places)
        while self.done < goal:
            found = self.step()
            if found is None:
                sleep(_PAUSE_S)
            elif found.height:
                yield found

    def until(self, stop: Callable[[], bool]) -> Iterator[pl.DataFrame]:
        """Yield revisions as they become complete, until `stop` returns true."""
        while not stop():
            found = self.step()
            if found is None:
                sleep(_PAUSE_S)
            elif found.height:
                yield found

    def close(self) -> None:
        """Stop reading."""
        for source in self.inputs:
            source.close()
