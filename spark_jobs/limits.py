"""How far a batch reads if it takes about so many records: whole epochs, never a part of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.reports.progress_view import View, covered
from errata.spark_jobs.place import Place
from errata.spark_jobs.reading import revisions


class Found(NamedTuple):
    """A record: its offset and its epoch."""

    offset: int
    epoch: int


Search = Callable[[Place, int], Found | None]
"""Returns the first record of a partition, at an offset or later, that no batch has taken."""


class Limited(NamedTuple):
    """What a batch takes.

    Args:
        epoch: Its last epoch.
        ends: By partition of an input, an offset before which all records of epochs up to it are.
        is_over: Whether a single epoch has more records than a batch should have.
    """

    epoch: int
    ends: Mapping[Place, int]
    is_over: bool = False


def limited(
    epoch: int,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    *,
    most: int | None,
    search: Search,
    in_order: Callable[[Place], bool],
) -> Limited:
    """Return the whole epochs that a batch takes, at least one.

    Args:
        epoch: The last complete epoch.
        starts: By partition, the offset of the oldest record that no batch has taken.
        ends: By partition, an offset before which all records of epochs up to `epoch` are.
        most: About how many records a batch should have at most; None: no limit.
        search: Finds records before the ends.
        in_order: Whether a partition's records are in the order of their epochs.
    """
    heights = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    total = sum(heights.values())
    if most is None or total <= most:
        return Limited(epoch, ends)
    shares = {partition: max(1, most * height // total) for partition, height in heights.items()}
    found = {p: at for p, share in shares.items() if (at := search(p, starts[p] + share))}
    last = min([epoch, *(at.epoch - 1 for at in found.values())])
    firsts = (search(partition, start) for partition, start in starts.items())
    is_over = not any(first.epoch <= last for first in firsts if first)
    if is_over:
        last = min([epoch, *(at.epoch for at in found.values())])
    nearer = {p: at.offset for p, at in found.items() if last < at.epoch and in_order(p)}
    return Limited(last, {**ends, **nearer}, is_over)


@dataclass(frozen=True)
class Backlog:
    """What the topics of a job's inputs hold that no batch has taken.

    Args:
        view: What the tasks of the network have reported.
        codec: Returns the codec of an arc's records.
        ends: By partition of an input, where it ends.
        after: The last epoch that a batch has taken.
    """

    view: View
    codec: Callable[[str], ArcCodec]
    ends: Mapping[Place, int]
    after: int

    def first(self, place: Place, offset: int) -> Found | None:
        """Return the first committed record of a partition, at an offset or later."""
        committed = self.view.committed(self.view.writers(*place))
        offsets, codec = (offset, self.ends[place]), self.codec(place.arc)
        for polled in revisions(self.view.cluster, codec, place.partition, offsets):
            later = covered(polled, committed).filter(pl.col("epoch") > self.after)
            if later.height:
                return Found(later["offset"][0], later["epoch"][0])
        return None

    def limited(self, epoch: int, starts: Mapping[Place, int], most: int | None) -> Limited:
        """Return the whole epochs that a batch takes: see `limited`."""
        return limited(
            epoch, starts, self.ends, most=most, search=self.first, in_order=self._in_order
        )

    def _in_order(self, place: Place) -> bool:
        return len(self.view.writers(*place)) == 1
