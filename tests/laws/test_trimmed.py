"""The laws hold while tasks delete the records of connection points that nobody needs any more."""

from pathlib import Path

import pytest

from tests.laws.audit import Audit
from tests.laws.networks import apart, chain, exchanged, together, united
from tests.laws.simulation import Simulation

TICKS = 120
"""Each is 2 ms of event time: several times `keep` and the windows' radius."""


class Swift(Simulation):
    """A simulation in which tasks come far, so that much is deleted."""

    waits = False


@pytest.mark.parametrize("make", [apart, together, chain, exchanged, united])
def test_nothing_shows_that_records_were_deleted(make, tmp_path: Path):
    simulation = Swift(make(kept=True), seed=1, folder=tmp_path, ticks=TICKS)
    try:
        simulation.run()
        assert dict(Audit(simulation).found) == {}
    finally:
        simulation.close()
    assert simulation.seen["trimmed logs"]
