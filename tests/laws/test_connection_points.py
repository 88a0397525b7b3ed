"""All laws while connection points come and go, with processes that die at any time.

A network runs with history on some arcs, and switches to the same one with history on others.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest

from errata.deploy.versions import next_version
from errata.processors.plan.compiled import CompiledPlan
from tests.laws.networks import SHAPES
from tests.laws.seeds import seeds
from tests.laws.switching import SwitchAudit, Switching

seen = Counter[str]()


def _scopes(make, *, kept: bool) -> dict:
    return {name: scope.boxes for name, scope in make(kept=kept).plan.topology.scopes.items()}


MAKERS = [make for make in SHAPES if _scopes(make, kept=True) == _scopes(make, kept=False)]
"""The networks that differ in nothing but their connection points."""


class Toggling(Switching):
    """Switches to a plan with other connection points.

    Args:
        shape: The network.
        other: Its plan with other connection points.
        more: Other arguments of `Switching`.
    """

    def __init__(self, shape, other: CompiledPlan, **more) -> None:
        super().__init__(shape, count=0, **more)
        self.other = other

    def next(self, old: CompiledPlan) -> CompiledPlan:
        """Return the plan to switch to."""
        new = next_version(old, self.other)
        toggled = old.kept_ms.keys() ^ new.kept_ms.keys()
        self.seen["connection points added"] += len(toggled & new.kept_ms.keys())
        self.seen["connection points dropped"] += len(toggled & old.kept_ms.keys())
        return new


class ToggledAudit(SwitchAudit):
    """Checks the laws from the last epoch of the old version on."""

    def _agree(self) -> None:
        """L5: only revisions after the switch, since the content of some arcs was copied."""
        told, since = self.revisions, self.simulation.since
        self.revisions = {
            arc: [[row for row in rows if row["epoch"] > since] for rows in parts]
            for arc, parts in told.items()
        }
        super()._agree()
        self.revisions = told


def trial(make, seed: int, *, kept: bool) -> dict:
    """Run a scenario; return the violations by law."""
    with tempfile.TemporaryDirectory() as folder:
        other = make(kept=not kept).plan
        simulation = Toggling(make(kept=kept), other, seed=seed, folder=Path(folder))
        try:
            simulation.run()
            found = ToggledAudit(simulation).found
        finally:
            simulation.close()
        seen.update(simulation.seen)
    return {law: [len(what), *what[:3]] for law, what in found.items()}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_laws_hold_while_connection_points_come_and_go(make, kept: bool, seed: int) -> None:
    assert trial(make, seed, kept=kept) == {}


def test_connection_points_came_and_went() -> None:
    for number, make in enumerate(MAKERS):
        if not (seen["connection points added"] and seen["connection points dropped"]):
            trial(make, number, kept=number % 2 == 0)
    assert seen["connection points added"]
    assert seen["connection points dropped"]
