"""All laws while connection points come and go, with processes that die at any time.

A network runs with history on some arcs, and switches to the same one with history on others.
"""

from collections import Counter

import pytest

from errata.deploy.versions import next_version
from errata.processors.plan.compiled import CompiledPlan
from tests.laws.networks import SHAPES
from tests.laws.seeds import seeds
from tests.laws.switching import Switching, judged

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


def trial(make, seed: int, *, kept: bool) -> dict:
    """Run a scenario; return the violations by law."""
    shape, other = make(kept=kept), make(kept=not kept).plan
    return judged(lambda folder: Toggling(shape, other, seed=seed, folder=folder), seen)


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
