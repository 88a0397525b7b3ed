"""JSON objects that are tuples or revisions.

An object that has a declared field twice is refused: two readers might see different values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import UNSET, UnsetType

from errata.processors.envelopes.checks import ROW, Decoded, Refusal
from errata.processors.envelopes.connect_block import Block
from errata.processors.envelopes.json_tuples import JsonTuples, Places
from errata.processors.envelopes.made import Made
from errata.processors.envelopes.texts import decoded
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas.fields import Fields

SIDES = ("before", "after")

_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TupleReader:
    """Reads objects that are tuples, a column a field.

    Args:
        fields: The declared fields.
        block: What the schema block in front of them says.
    """

    def __init__(self, fields: Fields, block: Block) -> None:
        self.tuples = JsonTuples(fields, block)
        self.decode = msgspec.json.Decoder(self.tuples.struct).decode
        self.once = Once(fields)

    def read(self, texts: Sequence[bytes]) -> Decoded:
        """Return what the objects hold, and what can't be taken in."""
        found, rows, refused = decoded_each(self.decode, texts)
        made = Made()
        made.columns, there = self.tuples.columns(made, found, np.arange(len(found)))
        self.once.check(made, [texts[row] for row in rows.tolist()] if refused else texts, there)
        done = made.decoded(rows)
        return replace(done, refused=refused + done.refused)


class RevisionReader:
    """Reads objects with ``op``, ``before`` and ``after``, native or Debezium's.

    Args:
        fields: The declared fields.
        block: What the schema block in front of them says.
        ops: Codes of the ops.
        connector: Whether Debezium's heartbeats and bounds of transactions are passed over.
    """

    def __init__(
        self, fields: Fields, block: Block, *, ops: Mapping[str, int], connector: bool
    ) -> None:
        self.ops = ops
        inner = block.structs.get("after", block.structs.get("before", Block()))
        self.tuples, self.connector = JsonTuples(fields, inner), connector
        side = self.tuples.struct | None | UnsetType
        attributes = [("op", str | None | UnsetType, UNSET), *((n, side, UNSET) for n in SIDES)]
        whole: Any = msgspec.defstruct("Revision", attributes, gc=False, eq=False)
        self.decode = msgspec.json.Decoder(whole).decode
        self.once = Once(["op", *SIDES, *fields])

    def read(self, texts: Sequence[bytes]) -> Decoded:
        """Return what the objects hold, and what can't be taken in."""
        found, rows, refused = decoded_each(self.decode, texts)
        made, passed = Made(), 0
        ops = list(map(attrgetter("op"), found))
        there = len(ops) - ops.count(UNSET)
        made.columns["op"] = pl.Series(list(map(self.ops.get, ops)), dtype=pl.UInt8)
        for name in SIDES:
            sides = list(map(attrgetter(name), found))
            there += len(sides) - sides.count(UNSET)
            has = np.fromiter(map(is_, map(type, sides), repeat(self.tuples.struct)), np.bool_)
            places = np.flatnonzero(has)
            present = [sides[i] for i in places.tolist()] if len(places) < len(sides) else sides
            columns, inside = self.tuples.columns(made, present, places, prefix=f"{name}.")
            there += inside
            made.columns[f"has_{name}"] = pl.Series(has, dtype=pl.Boolean)
            made.columns |= _spread(columns, has, places)
        kept = [texts[row] for row in rows.tolist()] if refused else texts
        self.once.check(made, kept, there)
        done = made.decoded(rows)
        frame = done.frame
        if self.connector and frame["op"].null_count():
            silent = frame.filter(
                pl.col("op").is_null() & ~pl.col("has_before") & ~pl.col("has_after")
            )[ROW].to_list()
            silent = [row for row in silent if says_nothing(texts[row])]
            frame, passed = frame.filter(~pl.col(ROW).is_in(silent)), len(silent)
        return Decoded(frame, refused + done.refused, passed)


class Once:
    """Finds objects that have a field twice, however it is spelled.

    The texts' field names are counted, as are those that the structs have; only if the two differ
    is each object looked at.

    Args:
        names: The fields.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        self._pattern = rf'(?:"(?:{"|".join(map(re.escape, names))})|\\u[^"]*)"\s*:'

    def check(self, made: Made, texts: Sequence[bytes], there: int) -> None:
        """Note a fault of each that has one twice.

        Args:
            made: Where to.
            texts: The objects.
            there: How many fields they have, each counted once.
        """
        column = decoded(pl.Series(texts, dtype=pl.Binary))
        if int(column.str.count_matches(self._pattern).sum()) == there:
            return
        for place, text in enumerate(texts):
            fault = self._fault(text)
            if fault is not None:
                made.faults.setdefault(place, fault)

    def _fault(self, text: bytes) -> str | None:
        found: list[str] = []

        def pairs(members: list[tuple[str, object]]) -> None:
            named = [name for name, _ in members if name in self.names]
            found.extend(name for name in named if named.count(name) > 1)

        try:
            json.loads(text, object_pairs_hook=pairs, parse_int=str, parse_float=str)
        except UnicodeDecodeError as error:  # in what no struct takes
            return f"not UTF-8: {error.reason}"
        return f"field {found[0]!r} is there twice" if found else None


def decoded_each(
    decode: Callable[[bytes], Any], texts: Sequence[bytes]
) -> tuple[list[Any], Places, list[Refusal]]:
    """Return what decoding texts gives, their places, and those that can't be decoded."""
    try:
        return list(map(decode, texts)), np.arange(len(texts)), []
    except _BAD:  # one is bad: find out which
        found, rows, refused = [], [], []
        for row, text in enumerate(texts):
            try:
                found.append(decode(text))
            except _BAD as error:
                refused.append(Refusal(row, UNDECODABLE, f"not the JSON that is needed: {error}"))
            else:
                rows.append(row)
        return found, np.array(rows, np.int64), refused


def says_nothing(text: bytes) -> bool:
    """Whether an object is Debezium's heartbeat or the bound of a transaction."""
    found = msgspec.json.decode(text)
    return set(found) == {"ts_ms"} or ("id" in found and found.get("status") in ("BEGIN", "END"))


def _spread(
    columns: dict[str, pl.Series], has: npt.NDArray[np.bool_], places: Places
) -> dict[str, pl.Series]:
    """Return columns of some records as columns of all, null for the others."""
    if len(places) == len(has):
        return columns
    if not len(places):
        return {name: column.clear(len(has)) for name, column in columns.items()}
    at = pl.Series(np.where(has, np.cumsum(has) - 1, 0))
    at = at.set(pl.Series(~has), None)
    return {name: column.gather(at) for name, column in columns.items()}
