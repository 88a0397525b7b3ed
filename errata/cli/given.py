"""A tuple as a user gives it on a command line: JSON, or fields one by one."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import typer

from errata.client.source_record import declared
from errata.processors.plan.source import Source
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType

_TEXTS = {"string", "uuid", "bytes", "date", "timestamp-millis", "timestamp-micros"}


class RefusedRevisionError(ErrataError):
    """A revision does not fit what its source holds, or is no revision of it."""


def given_fields(source: Source, text: str | None, sets: list[str]) -> dict[str, Any]:
    """Return the fields that the user gave, as JSON has them.

    Args:
        source: Whose fields they are.
        text: A JSON object of some of them.
        sets: ``FIELD=VALUE`` of others; these win.

    Raises:
        RefusedRevisionError: If there is no such field.
    """
    found: Any = {}
    if text is not None:
        try:
            found = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise typer.BadParameter(f"the tuple is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise typer.BadParameter("the tuple needs to be a JSON object, as {...}")
    for part in sets:
        name, equals, value = part.partition("=")
        if not equals:
            raise typer.BadParameter(f"{part!r} needs the form FIELD=VALUE", param_hint="--set")
        found[name] = _value(_field(source, name), value)
    for name in found:
        _field(source, name)
    return dict(found)


def given_identity(source: Source, given: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return the identity that the user means, as JSON has it.

    Args:
        source: Whose identity it is.
        given: The fields that were given.
        keys: Its value, or ``FIELD=VALUE`` for each of its fields.

    Raises:
        RefusedRevisionError: If it is not whole, or the fields given say another one.
    """
    names = source.arc.identity
    found = {name: given[name] for name in names if name in given}
    for part in keys:
        name, equals, value = part.partition("=")
        if not equals or name not in names:
            if len(names) > 1:
                raise typer.BadParameter(
                    f"{part!r} needs the form FIELD=VALUE, with a field of {', '.join(names)}",
                    param_hint="--key",
                )
            name, value = names[0], part
        meant = _value(_field(source, name), value)
        if name in given and str(given[name]) != str(meant):
            raise RefusedRevisionError(
                f"the tuple {part!r} of source {source.arc.name!r} can't become "
                f"{name}={given[name]}: a replace keeps the identity; delete it and insert another"
            )
        found[name] = meant
    missing = [name for name in names if found.get(name) is None]
    if missing:
        raise RefusedRevisionError(
            f"a revision of source {source.arc.name!r} needs its identity, "
            f"{', '.join(missing)}: give --key, or it in the JSON tuple"
        )
    return found


def _field(source: Source, name: str) -> FieldType:
    fields = declared(source)
    if name not in fields:
        raise RefusedRevisionError(
            f"source {source.arc.name!r} has no field {name!r}: it has {', '.join(fields)}"
        )
    return fields[name]


def _value(kind: FieldType, text: str) -> Any:
    """Return a value that was given as text, as JSON has it.

    Example:
        >>> _value(FieldType.parse("decimal(9,2)"), "22.50"), _value(FieldType.parse("string"), "1")
        (Decimal('22.50'), '1')
    """
    if text == "null" and kind.optional:
        return None
    if kind.kind in _TEXTS:
        return int(text) if kind.kind.startswith("timestamp") and text.isdecimal() else text
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return text  # what it is is judged where all input is
