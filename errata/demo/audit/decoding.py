"""Decodes framed Avro with schemas from a topic or a schema registry."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterable
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import fastavro

from errata.demo.audit.log import AuditError, Entry

SCHEMAS = "_errata_schemas"
"""The topic with the schemas if no registry is used."""
_REACH_S = 10.0


class Schemas:
    """Decodes framed Avro.

    Args:
        find: Returns the schema of an id, None if there is none; called once for each.
    """

    def __init__(self, find: Callable[[int], Any]) -> None:
        self._find = find
        self._parsed: dict[int, Any] = {}

    def decode(self, value: bytes) -> Any:
        """Return the content of a value, decoded with its writer's schema.

        Raises:
            ValueError: If it is not framed, its schema is unknown, or it can't be decoded.
        """
        if len(value) < 5 or value[0] != 0:
            raise ValueError("not framed")
        schema = self._schema(int.from_bytes(value[1:5], "big"))
        try:
            return fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        except (EOFError, IndexError, TypeError, StopIteration, OverflowError, struct.error) as e:
            raise ValueError(f"not of its schema: {e}") from e

    def _schema(self, schema_id: int) -> Any:
        if schema_id not in self._parsed:
            found = self._find(schema_id)
            self._parsed[schema_id] = None if found is None else fastavro.parse_schema(found)
        if self._parsed[schema_id] is None:
            raise ValueError(f"schema {schema_id} is not in the registry")
        return self._parsed[schema_id]


def kept(entries: Iterable[Entry]) -> Schemas:
    """Return the schemas in a topic's records; of two with the same id the first counts."""
    found: dict[int, Any] = {}
    for entry in entries:
        told = json.loads(entry.value or b"{}")
        if told:
            found.setdefault(told["id"], told["schema"])
    return Schemas(found.get)


def served(url: str) -> Schemas:
    """Return the schemas of a registry with Confluent's API.

    Their `decode` raises `AuditError` if the registry does not respond.
    """

    def find(schema_id: int) -> Any:
        try:
            with urlopen(f"{url}/schemas/ids/{schema_id}", timeout=_REACH_S) as answer:
                return json.loads(json.load(answer)["schema"])
        except HTTPError as error:
            if error.code == 404:
                return None
            raise AuditError(f"schema {schema_id}, asked of {url}: {error}") from None
        except OSError as error:
            raise AuditError(f"no schema registry answers at {url}: {error}") from None

    return Schemas(find)
