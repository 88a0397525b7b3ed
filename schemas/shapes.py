"""Skips unwanted Avro values, in all records of a batch at once.

Arrays and maps have to be walked item by item, the k-th item of all records together. The expansion
of a few bytes is bounded: a record may have at most 10,000 such items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from errata.schemas.batch import Batch
from errata.schemas.joined import Ints

MAX_ITEMS = 10_000

ITEMS_OF = {"array": "items", "map": "values"}
"""The attribute in which a schema gives the item type of an array or map."""

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


@dataclass(frozen=True)
class Shape:
    """The wire format of a value to skip.

    Args:
        kind: A primitive type, ``enum``, ``fixed``, ``record``, ``union``, or ``items`` for arrays
            and maps.
        parts: Fields of a record, branches of a union, the one item of items.
        size: Bytes of a fixed.
    """

    kind: str
    parts: tuple[Shape, ...] = ()
    size: int = 0

    @property
    def width(self) -> int | None:
        """Bytes that every such value takes; None if the size varies."""
        if self.kind != "record":
            return self.size if self.kind == "fixed" else _WIDTHS.get(self.kind)
        widths = [part.width for part in self.parts]
        return None if None in widths else sum(width for width in widths if width)


def pass_over(shape: Shape, batch: Batch, field: str) -> None:
    """Move the cursors of a batch past a value of this shape.

    Args:
        shape: What is there.
        batch: The records; marked with a fault where it is not.
        field: Its name, for the fault.
    """
    width = shape.width
    if width is not None:
        batch.advance(width, field)
    elif shape.kind in ("string", "bytes"):
        batch.span(field)
    elif shape.kind == "record":
        for part in shape.parts:
            pass_over(part, batch, field)
    elif shape.kind == "union":
        _union(shape, batch, field)
    elif shape.kind == "items":
        _blocks(shape.parts[0], batch, field)
    else:
        batch.long(field)


def _union(shape: Shape, batch: Batch, field: str) -> None:
    index = batch.long(field)
    bad = (index < 0) | (index >= len(shape.parts))
    batch.refuse(bad, f"field {field!r}: no such union branch")
    for number, branch in enumerate(shape.parts):
        _in(np.flatnonzero(index == number), branch, batch, field)


def _in(rows: Ints, shape: Shape, batch: Batch, field: str) -> None:
    """Skip a value in some of the records only."""
    if len(rows):
        part = batch.part(rows)
        pass_over(shape, part, field)
        batch.join(rows, part)


def _blocks(item: Shape, batch: Batch, field: str) -> None:
    """Skip blocks of items, up to the empty one; the block's size follows a negative count."""
    rows = np.arange(len(batch))
    while len(rows):
        block = batch.part(rows)
        count = block.long(field)
        count = np.where((block.fault == 0) & (count > -MAX_ITEMS), count, MAX_ITEMS + 1)
        block.items += np.minimum(np.abs(count), MAX_ITEMS + 1)
        block.refuse(block.items > MAX_ITEMS, f"field {field!r}: more than {MAX_ITEMS} items")
        count = np.where(block.fault == 0, count, 0)
        sized = np.flatnonzero(count < 0)
        if len(sized):
            _in(sized, Shape("bytes"), block, field)  # a size, and as many bytes
        _items(item, block, np.maximum(count, 0), field)
        batch.join(rows, block)
        rows = rows[(count != 0) & (block.fault == 0)]


def _items(item: Shape, block: Batch, left: Ints, field: str) -> None:
    """Skip the given number of remaining items in each record."""
    if item.width is not None:
        block.advance(left * item.width, field)
        return
    while left.any():
        _in(np.flatnonzero(left), item, block, field)
        left = np.where(block.fault == 0, np.maximum(left - 1, 0), 0)
