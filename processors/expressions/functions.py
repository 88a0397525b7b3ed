"""All functions that an expression may call, by name."""

from __future__ import annotations

from errata.processors.expressions import choices as choice_functions
from errata.processors.expressions import number_functions, text_functions, time_functions
from errata.processors.expressions.function import Function

GROUPS: dict[str, tuple[Function, ...]] = {
    "Choices and nulls": choice_functions.FUNCTIONS,
    "Numbers": number_functions.FUNCTIONS,
    "Text and bytes": text_functions.FUNCTIONS,
    "Dates and times": time_functions.FUNCTIONS,
}
"""The functions by topic."""

FUNCTIONS: dict[str, Function] = {
    name: function
    for group in GROUPS.values()
    for function in group
    for name in (function.name, *function.aliases)
}
"""The functions by each of their names."""
