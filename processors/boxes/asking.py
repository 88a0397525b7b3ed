"""What a box that may need the history of its inputs is asked by the scope that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.answers import Answers, Live
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Above:
    """What such a box reads, as it is brought together where it is recomputed.

    Args:
        arc: The arc.
        by: Tuples that are alike in these fields are worked on in one place; field by field those
            of the first arc that the box reads, whose names ranges go by.
        columns: The fields that are looked at.
    """

    arc: Arc
    by: tuple[str, ...]
    columns: Sequence[str]


class Asking(ABC):
    """A box that looks at more than the revisions of an epoch.

    It may keep something between epochs, and ask for what else it needs.

    Attributes:
        arc: The arc it writes.
    """

    arc: Arc

    @property
    @abstractmethod
    def above(self) -> list[Above]:
        """What it reads; of what is asked for, only tuples whose `by` is among the asked ranges."""

    @property
    def keyed(self) -> list[tuple[Arc, dict[str, str]]]:
        """The arcs of `above`, each with its `by`, by what the first one calls these fields."""
        first = self.above[0].by
        return [(above.arc, dict(zip(first, above.by, strict=True))) for above in self.above]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads, each once."""
        return tuple(dict.fromkeys(above.arc.name for above in self.above))

    @property
    def computed(self) -> frozenset[str]:
        """The fields of its arc that are not the first input's, though they have their names."""
        return frozenset()

    @property
    def asks(self) -> bool:
        """Whether it ever needs history."""
        return True

    @property
    @abstractmethod
    def extent_ms(self) -> int:
        """How far back in event time it asks for one revision."""

    @property
    def looks_ahead(self) -> bool:
        """Whether what it gives at some event time may depend on tuples that happened later."""
        return False

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data."""

    @abstractmethod
    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of whole collections, in the order of `inputs`."""

    @abstractmethod
    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> Answers:
        """Take one epoch's revisions; yields what it needs and is sent the answers.

        Args:
            revisions: For each of `inputs` its revisions in this epoch, at most one per identity.
            live: What was kept after the epoch before.
            wm_before: Watermark of the epoch before.
            wm: Watermark of this epoch, never smaller.

        Returns:
            What to keep after the epoch, and the revisions of the output.
        """

    def kinds(self, revisions: pl.DataFrame, *, wm_before: int) -> dict[str, int]:
        """Return how many of its revisions are results that have closed, and that are revised.

        Nothing where results don't close.
        """
        return {}

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        return Live()

    def live_from_ms(self, wm: int) -> int | None:
        """Return the event time from which on the inputs tell what is kept at watermark `wm`.

        None if nothing is kept.
        """
        return None

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Return what is kept at watermark `wm`, from the inputs since `live_from_ms`, or more."""
        return Live()

    def closes(self, live: Live, *, wm: int) -> int | None:
        """Return the watermark by which an epoch without input has work again; None: never.

        Args:
            live: What is kept at watermark `wm`.
            wm: The watermark of the last epoch that was processed.
        """
        return None
