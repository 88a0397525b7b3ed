"""Locations in a graph where a time may be, and how the inputs of a node lead to its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from errata.processors.progress.timestamp import PathSummary, Timestamp

T = TypeVar("T", bound=Timestamp)


@dataclass(frozen=True, slots=True)
class Source:
    """An output of a node: where capabilities are held and messages are sent."""

    node: int
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """An input of a node: where messages wait."""

    node: int
    port: int


Location: TypeAlias = Source | Target

Connectivity: TypeAlias = Sequence[Mapping[int, Sequence[PathSummary[T]]]]
"""For each input of a node, the outputs that it leads to, with the path summaries.

An absent output can't be reached.
"""


def fully_connected(inputs: int, outputs: int, summary: PathSummary[T]) -> Connectivity[T]:
    """Return the connectivity of a node whose inputs all lead to all outputs by one summary.

    Example:
        >>> from errata.processors.progress.timestamp import IDENTITY
        >>> fully_connected(1, 2, IDENTITY)
        [{0: [Advance(by=0)], 1: [Advance(by=0)]}]
    """
    return [{port: [summary] for port in range(outputs)} for _ in range(inputs)]
