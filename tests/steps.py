"""Generators whose steps the product yields, taken all at once."""

from collections.abc import Iterator
from typing import Any


def ended(steps: Iterator[bool]) -> Any:
    """Take all steps of a generator; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
