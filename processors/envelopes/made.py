"""Columns of a batch under construction, with the first fault of each record."""

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
    """The columns built so far from the records of a batch.

    Args:
        columns: By name, all of one height.
        faults: By row in these columns.
    """

    columns: dict[str, pl.Series] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)

    def add_constant(
        self, column: str, value: object, dtype: type[pl.DataType], height: int
    ) -> None:
        """Add a column of one value; null for a missing field."""
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
        """Note a fault where a value could not be converted; return the column.

        Args:
            name: Name of the field, for the fault.
            made: The converted values, null where conversion failed.
            given: The original values.
            kind: The declared type.
            places: The row of each value, if not all records have one.
            hint: Text to add to the fault.
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
            rows: The row in the batch of each record.
            more: Further columns.
        """
        frame = pl.DataFrame({ROW: pl.Series(rows, dtype=pl.Int64), **more, **self.columns})
        if not self.faults:
            return Decoded(frame, [])
        good = np.ones(len(rows), np.bool_)
        good[list(self.faults)] = False
        refused = [Refusal(int(rows[i]), UNDECODABLE, why) for i, why in self.faults.items()]
        return Decoded(frame.filter(pl.Series(good)), refused)
