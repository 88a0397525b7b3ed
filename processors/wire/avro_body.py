"""Avro bodies of Errata's records: written with a fixed schema, read without trusting them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro

from errata.schemas.errors import ErrataError


class BodyError(ErrataError):
    """Some bytes are not a record of the expected schema."""


def write(content: Mapping[str, Any], schema: Any) -> bytes:
    """Return the body of a record, written with a parsed schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, content)
    return out.getvalue()


def read(body: bytes, schema: Any, *, written_by: Any = None) -> dict[str, Any]:
    """Return the record of a body.

    Args:
        body: The result of `write`; bytes after the record are ignored.
        schema: The parsed schema of the reader.
        written_by: The parsed schema of the writer, if it differs.

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
