"""A bug to plant: one changed line."""

from __future__ import annotations

from dataclasses import dataclass

RANDOM, ON_SPARK, WITH_JOINS, WITH_ROWS = "random", "on_spark", "with_joins", "with_rows"
WITH_LOOPS, PLACED, FAILING, IDLE = "with_loops", "placed_at_random", "failing", "idle"
LOSING, AWAY, TRIMMED, POISONED = "losing", "away", "trimmed", "poisoned"
COMPOSED = "composed"
"""The random networks, one after another (`tests/laws/random_networks.py`); those with jobs on
Spark, with joins, with boxes that depend on the order of tuples, with lookups and loops, or with
boxes of any kind on Spark; those with functions that raise (`tests/laws/failing.py`); partitions
that become idle and come back (`tests/laws/test_idle.py`); brokers that lose records
(`tests/laws/test_lost_records.py`); tasks that are away for longer than superseded records are kept
(`tests/laws/test_outages.py`); tapes so long that records are deleted
(`tests/laws/test_trimmed.py`); watermarks that run ahead and are put back
(`tests/laws/test_put_back.py`); networks bound to others (`tests/laws/test_composed.py`).
"""


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Args:
        name: What is wrong.
        file: The file to change.
        old: The line, or the part of it, that is changed; unique in the file.
        new: Its replacement.
        network: The networks of the laws (`tests/laws/networks.py`) on which the bug shows, or
            `RANDOM`, `ON_SPARK`, `WITH_JOINS`, `WITH_ROWS`, `WITH_LOOPS`, `PLACED`, `FAILING`,
            `IDLE`, `LOSING`, `AWAY`, `TRIMMED`, `POISONED` or `COMPOSED`.
        tests: The tests that must find it, where no law can see it: the laws have no disk that rots
            and no client that floods a topic.
    """

    name: str
    file: str
    old: str
    new: str
    network: str = "apart"
    tests: str = ""
