"""A producer and a registry's user that share no code with Errata: fastavro and plain HTTP."""

import io
from typing import Any

import fastavro
from confluent_kafka import Producer

AT = {"type": "long", "logicalType": "timestamp-millis"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "string"}]}
FEE = {"name": "fee", "type": ["null", "long"], "default": None}


def order(*more: dict[str, Any], without: str = "", **other: Any) -> dict[str, Any]:
    """Return a schema of orders: with more fields, without one, or with another type of one."""
    kinds = {"id": "string", "at": AT, "desk": "string", "price": PRICE} | other
    fields = [{"name": name, "type": kind} for name, kind in kinds.items() if name != without]
    return {"type": "record", "name": "Order", "fields": [*fields, *more]}


def framed(schema_id: int, schema: Any, content: Any) -> bytes:
    """Return a record as Kafka's registries frame it."""
    packed = io.BytesIO()
    fastavro.schemaless_writer(packed, fastavro.parse_schema(schema), content)
    return b"\0" + schema_id.to_bytes(4, "big") + packed.getvalue()


def unframed(value: bytes, schema: Any) -> Any:
    """Return what a record holds."""
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema))


class Orders:
    """Sends orders to a topic of one partition or several.

    Args:
        settings: The cluster's.
        topic: Where to.
        register: Gives a schema its id under a subject.
        partitions: Of the topic.
    """

    def __init__(self, settings: Any, topic: str, register: Any, *, partitions: int = 1) -> None:
        self.producer = Producer({**settings, "enable.idempotence": True})
        self.topic, self._register = topic, register
        self.partitions = partitions
        self._ids: dict[str, int] = {}

    def register(self, subject: str, schema: Any) -> int:
        """Return the id of a schema, asked for once."""
        asked = f"{subject} {schema}"
        if asked not in self._ids:
            self._ids[asked] = self._register(subject, schema)
        return self._ids[asked]

    def send(self, schema: Any, identity: str, content: dict[str, Any] | None) -> bytes | None:
        """Send an order by a schema, or that there is none any more; return the record's value."""
        key_id = self.register(f"{self.topic}-key", KEY)
        value = None
        if content is not None:
            value = framed(
                self.register(f"{self.topic}-value", schema), schema, {"id": identity} | content
            )
        key = framed(key_id, KEY, {"id": identity})
        place = sum(identity.encode()) % self.partitions
        self.producer.produce(self.topic, value, key, partition=place)
        assert self.producer.flush(30) == 0
        return value
