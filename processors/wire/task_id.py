"""Ids of tasks and scopes, with one parser and one printer.

The text of a task id is the key of the task's reports and a field of every record that it writes;
``<network>.<task>`` is its transactional id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from errata.schemas.errors import ErrataError

_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")
_REMEMBERED = 4096


class TaskIdError(ErrataError, ValueError):
    """A text is not a task id."""


class ScopeKind(Enum):
    """The work of a scope's tasks; the value is the prefix of the scope's name, if not empty."""

    INGEST = "ingest"
    """They ingest a source's topic."""
    SWEEPER = "sweep"
    """They keep and serve the copy of a connection point."""
    BOXES = ""
    """They run boxes, or own the identities of a rekeyed source."""


_PREFIXED = [kind for kind in ScopeKind if kind.value]


@dataclass(frozen=True, slots=True)
class ScopeId:
    """A scope: the part of a network that has one task per partition.

    Args:
        kind: The work of its tasks.
        name: Name of the source, of the arc, or of the scope itself.

    Example:
        >>> ScopeId.parse("ingest.trades")
        ScopeId(kind=<ScopeKind.INGEST: 'ingest'>, name='trades')
        >>> str(ScopeId.of_sweeper("trades")), str(ScopeId.of_boxes("totals"))
        ('sweep.trades', 'totals')
    """

    kind: ScopeKind
    name: str

    def __post_init__(self) -> None:
        if self.kind is ScopeKind.BOXES and _prefix_of(self.name) is not None:
            raise TaskIdError(f"{self.name!r} is not a name of a scope of boxes")

    @classmethod
    def of_source(cls, source: str) -> ScopeId:
        """Return the scope that ingests a source."""
        return cls(ScopeKind.INGEST, source)

    @classmethod
    def of_sweeper(cls, arc: str) -> ScopeId:
        """Return the scope of the sweepers of a connection point."""
        return cls(ScopeKind.SWEEPER, arc)

    @classmethod
    def of_boxes(cls, name: str) -> ScopeId:
        """Return a scope of boxes, or of the owners of a rekeyed source."""
        return cls(ScopeKind.BOXES, name)

    @classmethod
    def of_owners(cls, source: str) -> ScopeId:
        """Return the scope whose tasks own the identities of a rekeyed source."""
        return cls(ScopeKind.BOXES, f"{source}-owner")

    @staticmethod
    @lru_cache(_REMEMBERED)
    def parse(text: str) -> ScopeId:
        """Parse a scope; every text names one."""
        kind = _prefix_of(text)
        if kind is None:
            return ScopeId(ScopeKind.BOXES, text)
        return ScopeId(kind, text[len(kind.value) + 1 :])

    def __str__(self) -> str:
        return f"{self.kind.value}.{self.name}" if self.kind.value else self.name

    @property
    def is_ingest(self) -> bool:
        """Whether its tasks ingest a source; `name` is then the source's."""
        return self.kind is ScopeKind.INGEST

    @property
    def is_sweeper(self) -> bool:
        """Whether its tasks serve a connection point; `name` is then the arc's."""
        return self.kind is ScopeKind.SWEEPER

    def task(self, partition: int) -> TaskId:
        """Return its task on a partition."""
        return TaskId(self, partition)


@dataclass(frozen=True, slots=True)
class TaskId:
    """A scope on one partition.

    Args:
        scope: The scope.
        partition: The partition, from 0.

    Example:
        >>> TaskId.parse("sweep.trades.0").scope.name, str(ScopeId.of_boxes("totals").task(3))
        ('trades', 'totals.3')
    """

    scope: ScopeId
    partition: int

    @staticmethod
    @lru_cache(_REMEMBERED)
    def parse_or_none(text: str) -> TaskId | None:
        """Return the task that a text names; None if it names none."""
        scope, dot, partition = text.rpartition(".")
        if not (scope and dot and _PARTITION.fullmatch(partition)):
            return None
        return TaskId(ScopeId.parse(scope), int(partition))

    @staticmethod
    def parse(text: str) -> TaskId:
        """Return the task that a text names.

        Raises:
            TaskIdError: If it names none.
        """
        task = TaskId.parse_or_none(text)
        if task is None:
            raise TaskIdError(f"{text!r} is not a task id, which has the form SCOPE.PARTITION")
        return task

    def __str__(self) -> str:
        return f"{self.scope}.{self.partition}"


def _prefix_of(text: str) -> ScopeKind | None:
    """Return the kind that prefixes a scope's name; None if none does."""
    prefix, dot, _ = text.partition(".")
    return next((kind for kind in _PREFIXED if dot and kind.value == prefix), None)
