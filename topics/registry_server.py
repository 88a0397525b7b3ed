"""A schema registry that is a server, reached by the client that Kafka's users know."""

from __future__ import annotations

import json
from typing import Any

from topics.cluster import Cluster, ClusterError
from topics.registry import Registry, SchemaRegistry, UnknownSchemaError

_NOT_FOUND = 404


class RegistryServer:
    """A `Registry` that is a server.

    Args:
        url: Where it is (SCHEMA_REGISTRY_URL).

    Raises:
        ClusterError: If its client is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise ClusterError(
                f"a schema registry is configured, but its client lacks '{error.name}'; "
                "run: pip install 'confluent-kafka[schemaregistry]'"
            ) from error
        self._client: Any = SchemaRegistryClient({"url": url})
        self._schemas: dict[int, dict[str, Any]] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema, registering it under a subject if it is new there.

        Raises:
            ClusterError: If the server refuses, as it does a schema that old readers can't read.
        """
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        try:
            return int(self._client.register_schema(subject, Schema(json.dumps(schema), "AVRO")))
        except SchemaRegistryError as error:
            raise ClusterError(
                f"the schema registry refuses the schema of subject '{subject}': "
                f"{error.error_message}; keep the arc's fields, or give it a new name"
            ) from error

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        if schema_id not in self._schemas:
            try:
                found = self._client.get_schema(schema_id)
            except SchemaRegistryError as error:
                if error.http_status_code != _NOT_FOUND:
                    raise ClusterError(
                        f"the schema registry does not give schema {schema_id}: "
                        f"{error.error_message}; see its log"
                    ) from error
                raise UnknownSchemaError(schema_id, registry="the schema registry") from error
            self._schemas[schema_id] = json.loads(found.schema_str)
        return self._schemas[schema_id]


def registry(cluster: Cluster, *, url: str | None = None) -> Registry:
    """Return the registry to use: the server at `url`, else the topic of the cluster."""
    return RegistryServer(url) if url else SchemaRegistry(cluster)
