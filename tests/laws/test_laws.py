"""The laws of docs/architecture.md on random scenarios.

Scenarios have late and moving tuples, crashes, zombies, and a cleaner.

``ERRATA_LAWS_EXAMPLES=100`` runs 100 scenarios for each network instead of a few.
"""

import os
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from errata.processors.wire import replay
from tests.laws.audit import Audit, Findings
from tests.laws.networks import SHAPES
from tests.laws.simulation import Simulation
from tests.laws.whole_contents import whole_contents

FEW = 3
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", FEW))
MUST_HAPPEN = [
    "revisions of closed windows",
    "moved event times",
    "moved partitions",
    "dead letters",
    "tuples of diamonds",
    "fall-backs",
    "coalesced epochs",
    *(f"killed at {call}" for call in ("begin", "produce", "flush", "report", "offsets")),
    *(f"killed at {call}" for call in ("commit", "committed")),
    "killed between steps",
    "doubtful commits",
    "fenced zombies",
    "exposed by a late EndTxn",
    "orphans covered",
    "tombstones",
    "records compacted away",
    "lost ingest",
    "lost scope",
    "lost sweep",
]
CASES = [(make, kept) for make in (*SHAPES, whole_contents) for kept in (True, False)]
seen = Counter[str]()


def trial(make, kept: bool, seed: int) -> Findings:
    """Run one scenario; return the violations by law."""
    small = mock.patch.object(replay, "BLOCK_BYTES", 200)  # so that replies have many blocks
    with tempfile.TemporaryDirectory() as folder, small:
        simulation = Simulation(make(kept=kept), seed=seed, folder=Path(folder))
        try:
            simulation.run()
            found = Audit(simulation).found
        except Exception as error:
            raise AssertionError(f"Progress: a process died of itself: {error}") from error
        finally:
            simulation.close()
        seen.update(simulation.seen, scenarios=1)
    return dict(found)


@pytest.mark.parametrize(("make", "kept"), CASES)
def test_laws_hold_whatever_dies_and_whenever(make, kept):
    @settings(
        max_examples=EXAMPLES,
        derandomize=EXAMPLES == FEW,
        database=None,
        phases=[Phase.generate],  # a smaller seed is not a simpler scenario
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32))
    def law(seed: int) -> None:
        assert trial(make, kept, seed) == {}

    law()


def test_the_scenarios_had_all_that_the_laws_are_about():
    seed = 0
    while seen["scenarios"] < FEW * len(CASES):  # if this test is run alone
        trial(*CASES[seed % len(CASES)], seed)
        seed += 1
    assert [what for what in MUST_HAPPEN if not seen[what]] == []
