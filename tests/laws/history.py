"""All records that ever became visible in a network's topics, decoded without Errata's codec."""

import io
from collections import defaultdict
from itertools import chain
from typing import Any, NamedTuple

import fastavro

from errata.processors.plan.plan import Plan
from errata.processors.wire.report import NO_REPORT
from errata.topics import names
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

HEAD = 5  # magic byte and schema id


class Row(NamedTuple):
    """One record; `content` is None for a tombstone."""

    offset: int
    key: bytes | None
    content: dict[str, Any] | None


class History:
    """Reads continuously, so that it has the records that the cleaner removes later.

    Args:
        cluster: The cluster of the topics.
        plan: The plan that names them.
    """

    def __init__(self, cluster: MemoryCluster, plan: Plan) -> None:
        self.cluster, self.plan = cluster, plan
        self.registry = SchemaRegistry(cluster)
        self.schemas: dict[int, Any] = {}
        self.rows: dict[TopicPartition, list[Row]] = defaultdict(list)
        self.positions: dict[TopicPartition, int] = {}
        self.progress = TopicPartition(names.progress_topic(plan.network), 0)
        self.letters = TopicPartition(names.dead_letters_topic(plan.network), 0)
        self.arcs = {arc: self._places(arc) for arc in plan.topology.topics}

    def _places(self, arc: str) -> list[TopicPartition]:
        count = self.plan.placement.partitions[arc]
        return [
            TopicPartition(self.plan.deployment.topic(arc), partition) for partition in range(count)
        ]

    def read(self) -> None:
        """Read the records that have become visible."""
        for place in chain([self.progress, self.letters], *self.arcs.values()):
            records, self.positions[place] = self.cluster.log(place).read(
                self.positions.get(place, 0), 2**40
            )
            self.rows[place] += self._decoded(records)

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The contents of all reports, without the records that only end a transaction."""
        rows = [row for row in self.rows[self.progress] if row.key != NO_REPORT]
        assert all(row.content is not None for row in rows)
        return [row.content for row in rows if row.content is not None]

    def present(self, place: TopicPartition) -> list[Row]:
        """Return the records that are visible now, after cleaning."""
        return self._decoded(self.cluster.log(place).read(0, 2**40)[0])

    def _decoded(self, records: Any) -> list[Row]:
        columns = zip(records.offsets, records.keys, records.values, strict=True)
        return [Row(offset, key, self.decode(value)) for offset, key, value in columns]

    def decode(self, value: bytes | None) -> dict[str, Any] | None:
        """Return the content of a framed Avro record; times are plain numbers."""
        if value is None:
            return None
        schema_id = int.from_bytes(value[1:HEAD], "big")
        if schema_id not in self.schemas:
            plain = _plain_times(self.registry.schema(schema_id))
            self.schemas[schema_id] = fastavro.parse_schema(plain)
        found: Any = fastavro.schemaless_reader(
            io.BytesIO(value[HEAD:]), self.schemas[schema_id], None
        )
        return found  # type: ignore[no-any-return]


def _plain_times(schema: Any) -> Any:
    """Return a schema whose timestamps are plain longs."""
    if isinstance(schema, list):
        return [_plain_times(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _plain_times(part)
        for name, part in schema.items()
        if (name, part) != ("logicalType", "timestamp-millis")
    }
