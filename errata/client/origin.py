"""Finds the records of a user's topic behind revisions of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.boxes.matching import among, with_identities
from errata.processors.envelopes.batch import ROW
from errata.processors.ingest.intake import Intake
from errata.processors.plan.topology import Source, ingest_scope
from errata.processors.wire.report import INTERVAL_MS
from errata.processors.wire.task_id import TaskId
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.topics.cluster import Cluster, Records, TopicPartition, catch_up

MARGIN_MS = 600_000
"""How long before its epoch a record may have been appended, to be found without a search."""

_PLACES = {"partition": pl.Int32, "offset": pl.Int64, "time_ms": pl.Int64}


class Origin(NamedTuple):
    """The record that a revision of a source comes from; times are record timestamps in ms."""

    topic: str
    partition: int
    offset: int
    time_ms: int


class Origins:
    """Finds the records behind revisions of a source.

    No arc has the offsets of a user's topic. So the topic is read: first from some minutes before
    the epochs of the revisions, by the timestamps of its records, then as far back as it goes. A
    record is the origin of a revision if it is of the same identity and says what the tuple became,
    and no later one before the epoch does.

    Args:
        cluster: The cluster.
        source: The source.
        codec: The codec of its arc.
    """

    def __init__(self, cluster: Cluster, source: Source, codec: ArcCodec) -> None:
        self.cluster, self.source = cluster, source
        self._intake, self._identity = Intake(source, codec), list(source.arc.identity)

    def of(self, revisions: pl.DataFrame) -> list[Origin | None]:
        """Return the origin of each revision; None where the topic has it no more.

        Args:
            revisions: With the task and the epoch of each.
        """
        if self.source.is_bound or revisions.is_empty():
            return [None] * revisions.height
        partitions = self._partitions(revisions["task"].unique().to_list())
        since_ms = cast(int, revisions["epoch"].min()) * INTERVAL_MS - MARGIN_MS
        starts = {place: self.cluster.offset_at(place, since_ms) for place in partitions}
        found = self._among(self._read(starts, revisions), revisions)
        if None in found and any(starts.values()):
            starts = dict.fromkeys(partitions, 0)
            found = self._among(self._read(starts, revisions), revisions)
        return found

    def _partitions(self, tasks: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions in which the records may be."""
        topic, scope = self.source.topic, ingest_scope(self.source.arc.name)
        ids = [TaskId.parse(task) for task in tasks]
        if self.source.on_spark or any(str(each.scope) != scope for each in ids):
            return [TopicPartition(topic, n) for n in range(self.cluster.partitions(topic))]
        return [TopicPartition(topic, each.partition) for each in ids]

    def _read(self, starts: Mapping[TopicPartition, int], revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the records of some revisions' identities, decoded, with their places."""
        wanted = frames.identities(revisions, self._identity)
        parts = [pl.DataFrame(schema={**frames.schema(self.source.arc.fields), **_PLACES})]
        for place, start in starts.items():
            if start >= self.cluster.end(place):
                continue
            reader = self.cluster.reader({place: start})
            try:
                parts += [
                    self._decoded(records, wanted)
                    for records in catch_up(self.cluster, reader, place)
                ]
            finally:
                reader.close()
        return pl.concat(parts)

    def _decoded(self, records: Records, wanted: pl.DataFrame) -> pl.DataFrame:
        """Return the records that concern some identities."""
        decoded = self._intake.decode(records.values, records.keys).frame
        decoded = with_identities(self.source.arc, decoded, wanted)
        rows = decoded[ROW].to_list()
        places = {
            "partition": [records.source.partition] * len(rows),
            "offset": [records.offsets[row] for row in rows],
            "time_ms": [records.times_ms[row] for row in rows],
        }
        own = by_column.pick(decoded, list(frames.schema(self.source.arc.fields)))
        return own.hstack(pl.DataFrame(places, schema=_PLACES))

    def _among(self, records: pl.DataFrame, revisions: pl.DataFrame) -> list[Origin | None]:
        """Return for each revision the record that made its tuple what it became."""
        identity, names = self._identity, list(self.source.arc.fields)
        effects = records.with_columns(pl.col("op") == frames.DELETE)  # inserts may replace
        found: list[Origin | None] = []
        for row in range(revisions.height):
            own = revisions[row]
            is_delete = own["op"][0] == frames.DELETE
            same = identity if is_delete else names
            side = frames.BEFORE if is_delete else frames.AFTER
            on = {side + name: side + name for name in same}
            made = among(effects.filter(pl.col("op") == is_delete), own, on)
            in_time = made.filter(pl.col("time_ms") < (own["epoch"][0] + 1) * INTERVAL_MS)
            chosen = in_time[-1:] if in_time.height else made[:1]
            places = chosen.select(list(_PLACES)).rows()
            found.append(Origin(self.source.topic, *places[0]) if places else None)
        return found
