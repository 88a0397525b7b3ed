"""Locations in a graph where a time may be: outputs and inputs of its nodes (Timely).

Node 0 of a scope's graph is the outside: its outputs are the scope's inputs, and its inputs are the
scope's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from errata.processors.progress.antichain import Antichain
from errata.processors.progress.summary import PathSummary
from errata.processors.progress.timestamp import Timestamp

T = TypeVar("T", bound=Timestamp)

OUTSIDE = 0
"""The node that represents the outside of a scope."""


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

Connectivity: TypeAlias = Sequence[Mapping[int, Antichain[PathSummary[T]]]]
"""For each input of a node, the outputs that it leads to, with the minimal path summaries.

An absent output can't be reached.
"""


def fully_connected(inputs: int, outputs: int, summary: PathSummary[T]) -> Connectivity[T]:
    """Return the connectivity of a node whose inputs all lead to all outputs by one summary.

    Example:
        >>> from errata.processors.progress.summary import IDENTITY
        >>> fully_connected(1, 2, IDENTITY)[0][1]
        Antichain([Advance(by=0, below=inf)])
    """
    return [{port: Antichain([summary]) for port in range(outputs)} for _ in range(inputs)]
