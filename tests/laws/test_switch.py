"""All laws across a switch to other numbers of partitions, whatever dies and whenever."""

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.laws.audit import Findings
from tests.laws.networks import SHAPES
from tests.laws.switching import SwitchAudit, Switching

FEW = 2
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", FEW))
seen = Counter[str]()


def trial(make, seed: int) -> Findings:
    with tempfile.TemporaryDirectory() as folder:
        count = (1, 3, 4)[seed % 3]
        simulation = Switching(
            make(kept=seed % 2 == 0), count=count, seed=seed, folder=Path(folder)
        )
        try:
            simulation.run()
            found = SwitchAudit(simulation).found
        finally:
            simulation.close()
        seen.update(simulation.seen)
    return dict(found)


@pytest.mark.parametrize("make", SHAPES)
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_laws_hold_across_a_switch(make, seed):
    found = trial(make, seed)
    assert {law: [len(what), *what[:3]] for law, what in found.items()} == {}


def test_switches_died_and_met_those_who_were_slow_to_end():
    assert seen["killed in a switch"]
    assert seen["a switch ended by FencedError"] + seen["a switch ended by DoubtfulCommitError"]
    assert seen["fenced zombies"]
