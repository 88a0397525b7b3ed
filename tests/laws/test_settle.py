"""Boxes that keep revisions back are told to settle, at any moment, while processes die."""

import tempfile
from collections import Counter
from pathlib import Path

import pytest

from errata.processors.plan.deployed import settle
from tests.laws.audit import Audit
from tests.laws.networks import close_enough
from tests.laws.seeds import seeds
from tests.laws.simulation import Simulation

OFTEN = 0.01
"""The share of steps before which `errata settle` is run."""
seen = Counter[str]()


class Settling(Simulation):
    """A simulation in which `errata settle` is run now and then."""

    number = 0

    def _advance_somebody(self) -> None:
        if self.rng.random() < OFTEN:
            self.number += 1
            settle(self.cluster, self.plan, self.number)
        super()._advance_somebody()


def judge(seed: int, *, kept: bool, on_spark: bool = False) -> None:
    """Run a scenario, and check that it breaks no law and that all tasks have settled."""
    with tempfile.TemporaryDirectory() as folder:
        shape = close_enough(kept=kept, on_spark=on_spark)
        simulation = Settling(shape, seed=seed, folder=Path(folder))
        try:
            simulation.run()
            audit = Audit(simulation)
        finally:
            simulation.close()
    assert not dict(audit.found)
    for task, report in audit.newest.items():
        if any(name.endswith("-kept.kept_back") for name in report["counts"]):
            assert report["counts"].get("settles", 0) == simulation.number, task
    seen.update(audit.seen)


@pytest.mark.parametrize("seed", seeds(2, 4))
@pytest.mark.parametrize("kept", [True, False])
def test_laws_hold_while_boxes_settle(seed: int, kept: bool) -> None:
    judge(seed, kept=kept)


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_laws_hold_while_boxes_on_spark_settle(seed: int) -> None:
    judge(seed, kept=True, on_spark=True)


def test_results_that_were_kept_back_were_settled() -> None:
    for seed in range(4):
        if not seen["results that were settled"]:
            judge(seed, kept=True)
    assert seen["results that were settled"]
