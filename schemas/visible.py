"""What people and sinks see of revisions: not those of the hidden part alone."""

from __future__ import annotations

import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


def visible(arc: Arc, revisions: pl.DataFrame) -> pl.DataFrame:
    """Leave out revisions that change the hidden part only.

    Args:
        arc: What the revisions are of.
        revisions: A frame of revisions; all its columns stay.
    """
    same = pl.all_horizontal(
        pl.col(frames.BEFORE + name).eq_missing(pl.col(frames.AFTER + name)) for name in arc.visible
    )
    return revisions.filter((pl.col("op") != frames.REPLACE) | ~same)
