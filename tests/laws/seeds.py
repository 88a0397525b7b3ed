"""How many scenarios of a law are tried."""

import os
from typing import Any

import pytest


def seeds(few: int, many: int, *, share: float = 1.0) -> list[Any]:
    """Return the seeds of a law's scenarios: a few for `make test`, the rest for `make test-slow`.

    Args:
        few: How many `make test` tries.
        many: How many both try.
        share: How many of `ERRATA_LAWS_EXAMPLES` are tried, if that asks for a number.
    """
    if asked := os.environ.get("ERRATA_LAWS_EXAMPLES"):
        return [*range(int(int(asked) * share))]
    return [*range(few), *(pytest.param(s, marks=pytest.mark.slow) for s in range(few, many))]
