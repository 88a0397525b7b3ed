"""Generators whose steps the product yields, taken all at once."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def ended(steps: Generator[bool, None, T]) -> T:
    """Take all steps of a generator; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
