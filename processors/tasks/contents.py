"""The content of a scope's inputs as of an epoch, read from topics from their start."""

from __future__ import annotations

from bisect import bisect_left

import polars as pl

from errata.processors.arcs.partitioner import Spread
from errata.processors.plan.topology import Scope
from errata.processors.tasks.reading_again import ReadingAgain
from errata.processors.tasks.rebuild import Path, path_to
from errata.processors.tasks.shared import AnyInput, Shared
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.topics.cluster import Records, TopicPartition


class Contents:
    """The content of the inputs of one task.

    An input that keeps its history is read in the task's own partition. Any other is recomputed
    from the connection points above it, which are read in all partitions.

    Args:
        shared: State shared by the tasks of the process.
        scope: The task's scope.
        partition: The task's partition.
        again: Tells how far the task has come.
    """

    def __init__(
        self, shared: Shared, scope: Scope, *, partition: int, again: ReadingAgain
    ) -> None:
        self.shared, self.partition, self.again = shared, partition, again
        self._ends: dict[TopicPartition, int] = {}
        self.paths: dict[str, Path] = {arc: path_to(shared.plan, arc) for arc in scope.inputs}
        self.readers: dict[tuple[str, int], AnyInput] = {}
        self.floor = -1
        """The first epoch as of which all versions are there: older ones may be compacted away.

        That is the last one with records older than superseded ones are kept. It may not be
        complete yet: some writers may be behind others.
        """

    @property
    def is_open(self) -> bool:
        """Whether the topics are being read."""
        return bool(self.readers)

    def open(self) -> None:
        """Read the topics from their start."""
        counts = self.shared.plan.placement.partitions
        for path in self.paths.values():
            for arc in path.anchors:
                for number in range(counts[arc]) if path.between else [self.partition]:
                    if (arc, number) not in self.readers:
                        self.readers[arc, number] = self.shared.input(
                            arc, number, done=-1, resume=0, watch=self._note_age
                        )

    def poll(self) -> int:
        """Read what has arrived; return the last epoch that is complete in all topics.

        Raises:
            LostOffsetError: If a log no longer has the next records.
        """
        for reader in self.readers.values():
            reader.poll()
        return min(reader.frontier() for reader in self.readers.values())

    def _note_age(self, records: Records, revisions: pl.DataFrame) -> None:
        """Note how far the topics are read, and the last epoch whose older versions may be gone."""
        place = records.source
        if place not in self._ends:
            self._ends[place] = self.shared.cluster.end(place)
        self.again.note(place, records.offsets[-1] + 1, self._ends[place])
        horizon_ms = self.shared.view.newest_ms - self.shared.compaction_lag_ms
        if old := bisect_left(records.times_ms, horizon_ms):
            aged = by_column.kept(revisions, revisions["offset"] <= records.offsets[old - 1])
            last: int | None = aged["epoch"].max()  # type: ignore[assignment]
            self.floor = self.floor if last is None else max(self.floor, last)

    def as_of(self, epoch: int) -> dict[str, pl.DataFrame]:
        """Return the tuples of each input, in the task's partition; the epoch must be complete."""
        return {arc: self._content(arc, path, epoch) for arc, path in self.paths.items()}

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        readers, self.readers = self.readers, {}
        for reader in readers.values():
            reader.close()

    def _content(self, arc: str, path: Path, epoch: int) -> pl.DataFrame:
        if not path.between:
            return self._read(arc, [self.partition], epoch)
        plan, view = self.shared.plan, self.shared.view
        counts = plan.placement.partitions
        anchors = {name: self._read(name, range(counts[name]), epoch) for name in path.anchors}
        tuples = path.content(
            anchors, arc, wm=lambda box: view.line(plan.topology.scope_of(box)).at(epoch)
        )
        places = Spread(plan.topology.arcs[arc], counts[arc]).places(tuples)
        return tuples.filter(places == self.partition)

    def _read(self, arc: str, partitions: range | list[int], epoch: int) -> pl.DataFrame:
        kind = self.shared.plan.topology.arcs[arc]
        parts = [
            frames.fold(self.readers[arc, p].take(epoch), kind.identity, list(kind.fields))
            for p in partitions
        ]
        return pl.concat(parts)
