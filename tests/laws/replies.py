"""Replies so small that every answer has several blocks, and that many come in parts."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import polars as pl

from errata.processors.tasks import replay_client
from errata.processors.tasks.replay_client import Gathered
from errata.processors.wire import replay
from errata.processors.wire.replay import ALL_MS

PART_BYTES, RANGES_BYTES = 500, 2_000
"""Some tuples, and a few ranges."""


@contextmanager
def small_replies(seed: int, seen: Counter[str] | None = None) -> Iterator[None]:
    """Let replies have many blocks; with every third seed answers come in parts, too.

    Args:
        seed: Seed of the scenario.
        seen: Counts the parts.
    """
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(replay, "BLOCK_BYTES", 200))
        if random.Random(seed).random() < 1 / 3:
            stack.enter_context(small_parts(Counter() if seen is None else seen))
        yield


@contextmanager
def small_parts(seen: Counter[str]) -> Iterator[None]:
    """Let answers come in parts of some tuples."""
    add = Gathered.add

    def counted(self: Gathered, tuples: pl.DataFrame, covered: int, upto_ms: int) -> None:
        seen["ranges in parts"] += covered < self.left.height
        add(self, tuples, covered, upto_ms)
        seen["answers in parts"] += not self.is_whole and upto_ms < ALL_MS
        seen["parts that a box takes"] += not self.is_whole and self.query.take is not None

    sizes = {"PART_BYTES": PART_BYTES, "SMALLEST_PART_BYTES": 1, "RANGES_BYTES": RANGES_BYTES}
    with (
        mock.patch.multiple(replay_client, **sizes),
        mock.patch.object(Gathered, "add", counted),
    ):
        yield
