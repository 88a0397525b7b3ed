"""Avro bodies of our own records: written by a fixed schema, and read without trusting them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro

from errata.schemas.errors import ErrataError


class BodyError(ErrataError):
    """Some bytes are not a record of the schema that was expected."""


def write(content: Mapping[str, Any], schema: Any) -> bytes:
    """Return the body of a record by a parsed schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, content)
    return out.getvalue()


def read(body: bytes, schema: Any, *, written_by: Any = None) -> dict[str, Any]:
    """Return the record of a body.

    Args:
        body: What `write` gave; bytes behind the record are ignored.
        schema: The parsed schema that the reader knows.
        written_by: The parsed schema of the writer, if that is another one.

    Raises:
        BodyError: If the bytes are no such record.
    """
    writers = schema if written_by is None else written_by
    try:
        record: Any = fastavro.schemaless_reader(io.BytesIO(body), writers, schema)
    except (ArithmeticError, EOFError, LookupError, TypeError, ValueError, StopIteration) as error:
        raise BodyError(str(error)) from error
    if not isinstance(record, dict):
        raise BodyError(f"{type(record).__name__} in place of a record")
    return record
