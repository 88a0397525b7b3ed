"""Generators whose steps the product yields, taken all at once."""

from collections.abc import Iterator
from typing import Any


def first_step(steps: Iterator[bool], task: Any) -> None:
    """Advance an attempt of a task up to its first step."""
    for _ in steps:
        if task.started:
            return


def ended(steps: Iterator[bool]) -> Any:
    """Take all steps of a generator; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
