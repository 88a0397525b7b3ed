"""Traces results back to the tuples that they come from, box by box.

What is asked is the lineage of a result, or *why-provenance* (Buneman, Khanna and Tan, *Why and
where: a characterization of data provenance*, ICDT 2001): the input tuples behind an output tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from errata.processors.boxes.base import Box
from errata.schemas import by_column


def traced(
    boxes: Sequence[Box],
    contents: Sequence[Mapping[str, pl.DataFrame]],
    results: Mapping[str, pl.DataFrame],
    *,
    widely: bool = False,
) -> dict[str, pl.DataFrame]:
    """Return by arc the tuples that some results come from.

    Args:
        boxes: The boxes to go through, in topological order.
        contents: Tuples by arc: those of the inputs of the boxes. Of several moments: each tuple on
            the way is traced back as of each.
        results: Identities of tuples by arc. They need not exist.
        widely: Whether to return all tuples that may matter (`Box.dependencies`), not only those
            that the results are computed from (`Box.lineage`).

    Returns:
        Tuples of each arc that a box on the way reads, each once.
    """
    found: dict[str, list[pl.DataFrame]] = {}
    for box in reversed(boxes):
        name, identity = box.arc.name, list(box.arc.identity)
        wanted = [results[name]] if name in results else []
        wanted += found.get(name, [])
        if not wanted:
            continue
        identities = pl.concat(by_column.pick(frame, identity) for frame in wanted).unique()
        trace = box.dependencies if widely else box.lineage
        for moment in contents:
            above = [moment[arc] for arc in box.inputs]
            for arc, tuples in zip(box.inputs, trace(identities, *above), strict=True):
                found.setdefault(arc, []).append(tuples)
    return {arc: _each_once(parts) for arc, parts in found.items()}


def _each_once(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).unique(maintain_order=True)
