"""Functions that choose between values, or ask whether there is one."""

from __future__ import annotations

import polars as pl

from errata.processors.expressions import choices, rules
from errata.processors.expressions.function import ANY, Function
from errata.processors.expressions.part import Part, apply


def is_null(part: Part) -> Part:
    """Return ``part IS NULL``."""
    return apply(pl.Series.is_null, rules.BOOLEAN, part)


def is_not_null(part: Part) -> Part:
    """Return ``part IS NOT NULL``."""
    return apply(pl.Series.is_not_null, rules.BOOLEAN, part)


def _if_known(part: Part, then: Part, otherwise: Part) -> Part:
    return choices.choose([is_not_null(part)], [then], otherwise)


FUNCTIONS: tuple[Function, ...] = (
    Function("coalesce", (ANY,), "any", choices.coalesce, "coalesce(note, 'none')", repeats=True),
    Function(
        "ifnull", (ANY, ANY), "any", choices.coalesce, "ifnull(note, 'none')", aliases=("nvl",)
    ),
    Function("nvl2", (ANY, ANY, ANY), "any", _if_known, "nvl2(note, 'some', 'none')"),
    Function("nullif", (ANY, ANY), "any", choices.null_if, "nullif(size, 7)"),
    Function("isnull", (ANY,), "boolean, never null", is_null, "isnull(note)"),
    Function("isnotnull", (ANY,), "boolean, never null", is_not_null, "isnotnull(note)"),
)
