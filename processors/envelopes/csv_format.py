"""Records in CSV: one line each, no header, one cell per declared field, in declared order.

An empty cell is null; a quoted empty one is an empty text or empty bytes. A malformed line, or one
with another number of cells, is refused before the lines are parsed together, so that no cell can
extend into the next line.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import polars as pl

from errata.processors.envelopes.batch import ColumnBuilder, Decoded, Refusal
from errata.processors.envelopes.texts import decode_utf8, parse
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas.fields import Fields

_CELL = r'(?:[^",\r\n]*|"(?:[^"]|"")*")'


class CsvFormat:
    """Reads tuples of a source in CSV.

    Args:
        fields: The declared fields.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> fields = {"key": FieldType("string"), "size": FieldType.parse("long?")}
        >>> CsvFormat(fields).tuples([b"a,7", b'"b,c",']).frame.rows()
        [(0, 'a', 7), (1, 'b,c', None)]
    """

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._line = rf"^{_CELL}(?:,{_CELL}){{{len(fields) - 1}}}$"

    def tuples(self, values: Sequence[bytes]) -> Decoded:
        """Return the decoded lines and the refused ones."""
        lines = decode_utf8(pl.Series(values, dtype=pl.Binary))
        lines = lines.str.strip_suffix("\n").str.strip_suffix("\r")
        good = (lines.str.contains(self._line) & (lines != "")).fill_null(False)
        rows = good.arg_true().to_numpy()
        need = f"not UTF-8, or no line of {len(self.fields)} well-formed cells"
        refused = [Refusal(row, UNDECODABLE, need) for row in (~good).arg_true().to_list()]
        builder = ColumnBuilder()
        cells = _cells(lines.filter(good), list(self.fields))
        for name, kind in self.fields.items():
            original = cells[name]
            if kind.kind not in ("string", "bytes"):  # others: a quoted empty cell is null
                original = original.zip_with((original != "").fill_null(False), original.clear(1))
            builder.columns[name] = builder.checked(
                name, parse(original, kind), original=original, kind=kind
            )
        batch = builder.decoded(rows)
        return Decoded(batch.frame, refused + batch.refused)


def _cells(lines: pl.Series, names: list[str]) -> pl.DataFrame:
    """Return the cells of well-formed lines as texts."""
    if lines.is_empty():
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    # a line of one empty cell would be skipped: an extra last cell keeps all lines
    text = "\n".join((lines + ",.").to_list()) + "\n"
    return pl.read_csv(
        io.BytesIO(text.encode()),
        has_header=False,
        new_columns=[*names, "."],
        schema_overrides=dict.fromkeys([*names, "."], pl.String),
        infer_schema=False,
    ).select(names)
