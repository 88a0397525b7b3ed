"""Protobuf schemas and their messages for tests, made by Google's library."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import message_factory

from errata.processors.envelopes import protobuf_schema
from errata.topics.registry import PROTOBUF, NotAvroError
from tests.processors.envelopes.records import Registry


class Protos(Registry):
    """A registry of texts in Protobuf; of Avro schemas under other ids.

    Args:
        texts: Text by schema id.
        imports: Texts that they import, by name.
    """

    def __init__(self, texts: Mapping[int, str], imports: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.texts, self.imports = dict(texts), dict(imports or {})

    def schema(self, schema_id: int) -> Any:
        if schema_id in self.texts:
            raise self._protobuf(schema_id)
        return super().schema(schema_id)

    def latest(self, subject: str) -> Any:
        if self.subjects.get(subject) in self.texts:
            raise self._protobuf(self.subjects[subject])
        return super().latest(subject)

    def _protobuf(self, schema_id: int) -> NotAvroError:
        text, what = self.texts[schema_id], f"schema {schema_id}"
        return NotAvroError(
            what, kind=PROTOBUF, text=text, imports=self.imports, schema_id=schema_id
        )


def classes(text: str, imports: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the classes of all messages of a file, by the last part of their names."""
    file = protobuf_schema.compiled(text, imports or {})
    return {
        message.name: message_factory.GetMessageClass(message)
        for _, message in protobuf_schema.messages(file)
    }


def framed(message: Any, schema_id: int = 1, indexes: bytes = b"\0") -> bytes:
    """Return a message as the serializers of registries write it."""
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + message.SerializeToString()
