"""The laws of docs/architecture.md on random scenarios.

Scenarios have late and moving tuples, crashes, zombies, and a cleaner.

``ERRATA_LAWS_EXAMPLES=100`` runs 100 scenarios for each network instead of a few.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.laws.audit import Audit, Findings
from tests.laws.networks import SHAPES
from tests.laws.replies import small_replies
from tests.laws.seeds import seeds
from tests.laws.simulation import Simulation
from tests.laws.whole_contents import whole_contents

MUST_HAPPEN = [
    "revisions of closed windows",
    "moved event times",
    "moved partitions",
    "dead letters",
    "tuples of diamonds",
    "fall-backs",
    "results that are kept back",
    "coalesced epochs",
    "answers in parts",
    "ranges in parts",
    "parts that a box takes",
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
    with tempfile.TemporaryDirectory() as folder, small_replies(seed, seen):
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


@pytest.mark.parametrize("seed", seeds(1, 2))
@pytest.mark.parametrize(("make", "kept"), CASES)
def test_laws_hold_whatever_dies_and_whenever(make, kept: bool, seed: int) -> None:
    assert trial(make, kept, seed) == {}


def test_the_scenarios_had_all_that_the_laws_are_about():
    def never_seen() -> list[str]:
        return [what for what in MUST_HAPPEN if not seen[what]]

    for seed in range(2 * len(CASES)):  # if the ones above were few, or this test is run alone
        if not never_seen():
            break
        trial(*CASES[seed % len(CASES)], seed)
    assert never_seen() == []
