"""The records of a sink: revisions of an arc in the sink's envelope, without hidden fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from errata.processors.plan.arc_name import owner_of
from errata.schemas import by_column, framing
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc, visible
from errata.schemas.avro import key_schema, namespace, revision_schema, tuple_schema
from errata.schemas.encode import Encoder
from errata.schemas.fields import Fields, FieldType
from errata.schemas.json_text import NULL, json_object, json_tuple, json_value, quoted
from errata.schemas.partition import partitions
from errata.topics.cluster import Transactions
from errata.topics.registry import Registry

Encode = Callable[[pl.DataFrame], list[bytes]]

_OP_CODES = {frames.INSERT: "c", frames.REPLACE: "u", frames.DELETE: "d"}
_CONNECTOR = "errata"
_SOURCE = {"connector": "string", "name": "string", "table": "string", "epoch": "long"}
_SOURCE_FIELDS = {n: FieldType(t) for n, t in _SOURCE.items()} | {"ts_ms": FieldType("long")}


class Outgoing:
    """Encodes the records of one sink.

    Keys are the identity, in the sink's format. Avro schemas are registered under ``<topic>-key``
    and ``<topic>-value``; the registry raises an error if it refuses them.

    Args:
        arc: The arc of the revisions.
        topic: The user's topic.
        envelope: ``native``: op, before, after. ``debezium``: before, after, source, op (c, u, d),
            ts_ms, and a tombstone after each delete. ``upsert``: the tuple, or no value.
        format: ``avro`` or ``json``.
        registry: Registers Avro schemas.
    """

    def __init__(
        self, arc: Arc, topic: str, envelope: str, format: str, registry: Registry
    ) -> None:
        self.arc, self.topic, self.envelope = arc, topic, envelope
        self.name = owner_of(arc.name)  # the user's name, also behind an exchange
        fields = {name: arc.fields[name] for name in arc.visible}
        identity = {name: fields[name] for name in arc.identity if name in fields}
        if format == "json":
            self._keys, self._values = _json(json_tuple(identity)), _json(_value(envelope, fields))
        else:
            key = key_schema(self.name, fields, list(identity))
            value = value_schema(self.name, fields, envelope=envelope)
            self._keys = _avro(key, registry.register(f"{topic}-key", key))
            self._values = _avro(value, registry.register(f"{topic}-value", value))

    def produce(
        self,
        transactions: Transactions,
        revisions: pl.DataFrame,
        *,
        epoch: int,
        time_ms: int,
        partition_count: int,
    ) -> None:
        """Write the visible revisions to the topic, partitioned by the hash of the record key."""
        keys, values = self.encode(revisions, epoch=epoch, time_ms=time_ms)
        if keys:
            places = partitions(keys, partition_count).tolist()
            transactions.produce(self.topic, partitions=places, keys=keys, values=values)

    def encode(
        self, revisions: pl.DataFrame, *, epoch: int, time_ms: int
    ) -> tuple[list[bytes], list[bytes | None]]:
        """Return keys and values of the records, in order; a value of None is a tombstone.

        Args:
            revisions: A frame of revisions. Those that change only hidden fields produce no record.
            epoch: Their epoch.
            time_ms: When they were emitted, ms since 1970.
        """
        visible_revisions = visible(self.arc, revisions)
        if visible_revisions.is_empty():
            return [], []
        keys = self._keys(frames.identities(visible_revisions, self.arc.identity))
        is_delete = (visible_revisions["op"] == frames.DELETE).to_numpy()
        if self.envelope == "upsert":
            tuples = frames.side(visible_revisions, frames.AFTER, self.arc.visible)
            is_present = visible_revisions["op"] != frames.DELETE
            values = np.full(len(keys), None, object)
            values[~is_delete] = self._values(by_column.kept(tuples, is_present))
            return keys, values.tolist()
        encoded: list[bytes | None] = list(
            self._values(self._sided(visible_revisions, epoch, time_ms))
        )
        if self.envelope == "debezium" and is_delete.any():
            return _with_tombstones(keys, encoded, is_delete)
        return keys, encoded

    def _sided(self, revisions: pl.DataFrame, epoch: int, time_ms: int) -> pl.DataFrame:
        """Return revisions with the further fields of the envelope."""
        frame = frames.with_sides(revisions)
        if self.envelope == "native":
            return frame
        source = {"connector": _CONNECTOR, "name": self.topic, "table": self.name, "epoch": epoch}
        return frame.with_columns(
            pl.col("op").replace_strict(_OP_CODES, return_dtype=pl.String),
            pl.lit(time_ms, pl.Int64).alias("ts_ms"),
            *(
                pl.lit(value).alias(f"source.{name}")
                for name, value in (source | {"ts_ms": time_ms}).items()
            ),
        )


def value_schema(arc_name: str, fields: Fields, *, envelope: str) -> dict[str, Any]:
    """Return the Avro schema of a sink's values."""
    space = {"namespace": namespace(arc_name)}
    if envelope == "upsert":
        return tuple_schema("Tuple", fields) | space
    revision = revision_schema(arc_name, fields)
    op, before, after = revision["fields"][:3]
    if envelope == "native":
        return revision | {"fields": [op, before, after]}
    source = {"name": "source", "type": tuple_schema("Source", _SOURCE_FIELDS)}
    plain = [{"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"}]
    return {"type": "record", "name": "Envelope", "fields": [before, after, source, *plain]} | space


def _value(envelope: str, fields: Fields) -> pl.Expr:
    """Return the JSON expression of a sink's values."""
    if envelope == "upsert":
        return json_tuple(fields)
    sides = {
        side: pl.when(pl.col(side)).then(json_tuple(fields, prefix=f"{side}.")).otherwise(NULL)
        for side in ("before", "after")
    }
    if envelope == "native":
        names = dict(enumerate(frames.OPS))
        op = pl.col("op").replace_strict(names, return_dtype=pl.String)
        return json_object({"op": quoted(op), **sides})
    source = json_tuple(_SOURCE_FIELDS, prefix="source.")
    time = json_value(pl.col("ts_ms"), FieldType("long"))
    return json_object({**sides, "source": source, "op": quoted(pl.col("op")), "ts_ms": time})


def _json(text: pl.Expr) -> Encode:
    return lambda frame: frame.select(text.cast(pl.Binary).alias(""))[""].to_list()


def _avro(schema: dict[str, Any], schema_id: int) -> Encode:
    encoder = Encoder(schema)
    return lambda frame: framing.frame(encoder.encode(frame), schema_id)


def _with_tombstones(
    keys: list[bytes], values: list[bytes | None], is_delete: np.ndarray[Any, np.dtype[np.bool_]]
) -> tuple[list[bytes], list[bytes | None]]:
    """Return records with a tombstone after each delete."""
    times = 1 + is_delete.astype(np.int64)
    both = [np.repeat(np.array(column, object), times) for column in (keys, values)]
    both[1][np.cumsum(times)[is_delete] - 1] = None
    return both[0].tolist(), both[1].tolist()
