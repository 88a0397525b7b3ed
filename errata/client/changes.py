"""An arc's revisions as a program follows them: one object for each complete epoch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import polars as pl
import pyarrow as pa

from errata.client import rows
from errata.client.reading import Moment, Tail, moment_ms, network_of, opened
from errata.observe.network_progress import current
from errata.processors.declare.network import Stream
from errata.processors.wire.report import INTERVAL_MS
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc, visible
from errata.schemas.arrow import tuple_columns, tuple_fields
from errata.topics.client import Settings

_PAUSE_S = 0.02


@dataclass(frozen=True, eq=False)
class Change:
    """What one epoch has changed in an arc, all of it.

    Args:
        kind: The arc, with its fields.
        epoch: The epoch.
        content: Its revisions, deletes first, with physical types.
    """

    kind: Arc
    epoch: int
    content: pl.DataFrame

    @property
    def at_ms(self) -> int:
        """When the epoch began, in ms since 1970."""
        return self.epoch * INTERVAL_MS

    def __len__(self) -> int:
        """Return the number of revisions."""
        return self.content.height

    @cached_property
    def revisions(self) -> list[dict[str, Any]]:
        """The revisions as dicts: ``op``, ``before`` and ``after`` if present, ``epoch``."""
        return rows.revisions(self.kind, self.content)

    def to_arrow(self) -> pa.Table:
        """Return ``op``, ``before`` and ``after`` with logical types; absent sides are null."""
        op, fields = self.content["op"], tuple_fields(self.kind)
        sides = [
            pa.StructArray.from_arrays(
                tuple_columns(self.kind, self.content, side),
                fields=[field.with_nullable(True) for field in fields],
                mask=pa.array((op == absent).to_list(), pa.bool_()),
            )
            for side, absent in ((frames.BEFORE, frames.INSERT), (frames.AFTER, frames.DELETE))
        ]
        ops = pa.array([frames.OPS[each] for each in op.to_list()], pa.string())
        return pa.table({"op": ops, "before": sides[0], "after": sides[1]})

    def to_polars(self) -> pl.DataFrame:
        """Return the same as a frame of Polars."""
        return pl.from_arrow(self.to_arrow())  # type: ignore[return-value]


class Changes:
    """Follows an arc, for ``for`` and ``async for``: see `follow`."""

    def __init__(self, arc: Stream, *, since: Moment | None, settings: Settings | None) -> None:
        self._stack, self._ending, self._turn = ExitStack(), threading.Event(), threading.Lock()
        with ExitStack() as opening:
            deployment = opening.enter_context(opened(network_of(arc), settings))
            name = deployment.require_topic(arc.name)
            progress = current(deployment.cluster, deployment.plan)
            opening.callback(progress.close)
            self._kind = deployment.plan.topology.arcs[name]
            from_ms = None if since is None or since == BEGINNING else moment_ms(since)
            self._tail = Tail(
                progress,
                deployment.codec(name),
                from_beginning=since == BEGINNING,
                since_ms=from_ms,
            )
            opening.callback(self._tail.close)
            self._stack = opening.pop_all()

    def __iter__(self) -> Iterator[Change]:
        """Yield what each epoch changes, as it becomes complete; ends with `close`."""
        while not self._ending.is_set():
            with self._turn:
                revisions = None if self._ending.is_set() else self._tail.step()
            if revisions is None:
                self._ending.wait(_PAUSE_S)
                continue
            for part in visible(self._kind, revisions).partition_by("epoch", maintain_order=True):
                yield Change(self._kind, int(part["epoch"][0]), part)

    async def __aiter__(self) -> AsyncIterator[Change]:
        """Yield the same without blocking the loop."""
        found = iter(self)
        while (change := await asyncio.to_thread(next, found, None)) is not None:
            yield change

    def close(self) -> None:
        """End the iteration, and the connection; safe to call twice, and from another thread."""
        self._ending.set()
        with self._turn:
            self._stack.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


BEGINNING = "beginning"
"""In place of a time: all that the arc's topic holds."""


def follow(
    arc: Stream, *, since: Moment | None = None, settings: Settings | None = None
) -> Changes:
    """Follow the revisions of an arc of a deployed network, epoch by epoch.

    Each epoch is whole: complete in all partitions, and without what no task has reported. Epochs
    come in order, those without visible revisions are left out. The result is iterated over with
    ``for`` or ``async for``, and closed when it is no longer needed; it is a context manager, too.

    Args:
        arc: The arc; it needs a topic.
        since: Begin with the epochs after this time: an ISO time, a `datetime`, or ms since 1970;
            ``"beginning"``: with all that the topic holds (of superseded revisions compaction may
            have removed some); None: with new epochs only.
        settings: As in `errata.read`.

    Raises:
        UnknownNameError: If the arc has no topic; the message lists those that have one.
        NotDeployedError: If the network doesn't run there.
        PlanMismatchError: If another network of that name runs there.
    """
    return Changes(arc, since=since, settings=settings)
