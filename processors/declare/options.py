"""Keywords of a box that are neither an option of it nor, in all likelihood, a result.

A box takes its results as keywords beside its options, so a mistyped option would be a result.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from errata.processors.windows.time_windows import AnyWindow

ELSEWHERE = frozenset({
    "as_of", "allowed_lateness", "filter", "grace", "group_by", "having", "horizon", "lateness",
    "left_on", "order_by", "partition_by", "right_on", "select", "ttl", "watermark",
    "within",
})  # fmt: skip
"""Options of other boxes and other systems: as results only under ``fields=``."""
LIKENESS = 0.75
"""How alike a keyword and an option must be for one to be taken for the other (`difflib`)."""


def options_of(method: Callable[..., Any]) -> list[str]:
    """Return the names of the options of a method that declares a box."""
    parameters = inspect.signature(method).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


def nearest(keyword: str, options: list[str]) -> str | None:
    """Return the option that a keyword is likely to mean."""
    return next(iter(difflib.get_close_matches(keyword, options, n=1, cutoff=LIKENESS)), None)


def mistaken(named: Mapping[str, Any], method: Callable[..., Any]) -> tuple[str, str, str] | None:
    """Return what was needed, what was found and what to do, if a keyword can be no result.

    Args:
        named: The keywords that the method did not take as options.
        method: Declares the box.
    """
    options = options_of(method)
    for keyword, value in named.items():
        is_no_result = isinstance(value, bool | list | tuple | set | dict | AnyWindow)
        if keyword in ELSEWHERE or value is None or is_no_result:
            meant = nearest(keyword, options)
            remedy = f"write {meant}=" if meant else f"use one of {', '.join(options)}"
            if keyword in ELSEWHERE:
                remedy += f'; a result of this name goes into fields={{"{keyword}": ...}}'
            return f"options that {method.__name__} has", f"{keyword}=", remedy
    return None
