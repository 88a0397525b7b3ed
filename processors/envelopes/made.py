"""Columns of a batch in the making, with the first fault of each record."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.envelopes.checks import ROW, Decoded, Refusal
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas.fields import FieldType

_SHOWN = 60


@dataclass
class Made:
    """What has been made of the records of a batch so far.

    Args:
        columns: By name, all of one height.
        faults: By place in these columns.
    """

    columns: dict[str, pl.Series] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)

    def add_constant(
        self, column: str, value: object, dtype: type[pl.DataType], height: int
    ) -> None:
        """Add a column of one value, null where a field is not there."""
        self.columns[column] = pl.Series([value], dtype=dtype).new_from_index(0, height)

    def checked(
        self,
        name: str,
        made: pl.Series,
        *,
        given: pl.Series,
        kind: FieldType,
        places: npt.NDArray[np.int64] | None = None,
        hint: str = "",
    ) -> pl.Series:
        """Note where a given value could not be made one of its type; return the column.

        Args:
            name: Of the field, as the fault tells it.
            made: The values in the physical type, null where that failed.
            given: What they were made of.
            kind: The type.
            places: Where the values belong if they are not of all records.
            hint: What to say besides.
        """
        if made.null_count() > given.null_count():
            for i in (made.is_null() & given.is_not_null()).arg_true().to_list():
                found = str(given[i])[:_SHOWN]
                place = i if places is None else int(places[i])
                self.faults.setdefault(
                    place, f"{name!r} needs {kind.required}, found {found}{hint}"
                )
        return made

    def decoded(self, rows: npt.NDArray[np.int64], **more: pl.Series) -> Decoded:
        """Return the good records and the refused ones.

        Args:
            rows: The place in the batch of each.
            more: Further columns.
        """
        frame = pl.DataFrame({ROW: pl.Series(rows, dtype=pl.Int64), **more, **self.columns})
        if not self.faults:
            return Decoded(frame, [])
        good = np.ones(len(rows), np.bool_)
        good[list(self.faults)] = False
        refused = [Refusal(int(rows[i]), UNDECODABLE, why) for i, why in self.faults.items()]
        return Decoded(frame.filter(pl.Series(good)), refused)
