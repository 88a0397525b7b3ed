"""Finds tuples by fields of their identity that a person gives as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from errata.client import rows
from errata.client.texts import display_values
from errata.processors.boxes.states import START
from errata.processors.envelopes.texts import parse
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError

MOST_NAMED = 5
"""The most tuples that a message lists."""


class IdentityTextError(ErrataError):
    """A text does not give a field of an arc's identity."""


class NoSuchResultError(ErrataError):
    """An arc has no result, or several, of the values that were given."""


def identity_fields(arc: Arc) -> list[str]:
    """Return the fields of an arc's identity that people see."""
    return [name for name in arc.identity if name in arc.visible]


def wanted(arc: Arc, given: Iterable[str]) -> pl.DataFrame | None:
    """Return the values of identity fields, in one row; None if none is given.

    Args:
        arc: The arc.
        given: ``FIELD=VALUE``; ``window=`` is short for ``window_start=``.

    Raises:
        IdentityTextError: If one is malformed, or of no field of the identity.
    """
    identity, columns = identity_fields(arc), dict[str, pl.Series]()
    for pair in given:
        name, separator, text = pair.partition("=")
        name = START if name == "window" and "window" not in arc.fields else name
        if not separator or name not in identity:
            raise IdentityTextError(
                f"{pair!r} needs to be FIELD=VALUE with a field of the identity of {arc.name!r}: "
                f"{', '.join(identity)}"
            )
        kind = arc.fields[name]
        columns[name] = parse(pl.Series([text], dtype=pl.String), kind)
        if columns[name].null_count() and not (kind.optional and text == "null"):
            raise IdentityTextError(f"{name!r} needs {kind.required}, found {text!r}")
    return pl.DataFrame(columns) if columns else None


def require_one(arc: Arc, revisions: pl.DataFrame) -> None:
    """Check that revisions are of one tuple.

    Raises:
        NoSuchResultError: If they are of none, or of several.
    """
    identities = frames.identities(revisions, arc.identity).unique(maintain_order=True)
    if identities.height == 1:
        return
    if identities.is_empty():
        raise NoSuchResultError(
            f"arc {arc.name!r} has no revision of such a tuple in its topic; see `errata tail NET "
            f"{arc.name} --from-beginning`"
        )
    last = frames.last(revisions, arc.identity)[-MOST_NAMED:].reverse()
    shown = "; ".join(
        " ".join(identity_texts(arc, line.get("after") or line["before"]))
        for line in rows.revisions(arc, last)
    )
    raise NoSuchResultError(
        f"arc {arc.name!r} has {identities.height} such tuples; name one, by "
        f"{', '.join(identity_fields(arc))}. Revised last: {shown}"
    )


def identity_texts(arc: Arc, values: Mapping[str, Any]) -> list[str]:
    """Return the identity of a tuple as `wanted` takes it."""
    return [
        f"{name}={'null' if shown is None else shown}"
        for name, shown in zip(values, display_values(arc.fields, values), strict=True)
        if name in arc.identity
    ]
