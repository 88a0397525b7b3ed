"""Clocks of two ingest tasks an hour apart: epochs close at the pace of the faster clock.

And a clock that is set back while its task runs: nothing waits until it shows the old time again.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from errata.processors.wire.report import INTERVAL_MS
from tests.laws.audit import Audit
from tests.laws.networks import apart, united
from tests.laws.simulation import Simulation

HOUR_MS = 3_600_000


class Clocked(Simulation):
    """Records how many epochs the tasks of scopes had completed before the first drain."""

    completed = 0

    def drain(self) -> None:
        if not self.completed:
            self.history.read()
            done = defaultdict[str, set[int]](set)
            for report in self.history.reports:
                done[report["task"]].add(report["done"])
            scopes = [done[f"{name}.{p}"] for name in self.plan.topology.scopes for p in range(2)]
            self.completed = sum(map(len, scopes))
        super().drain()


def trial(make, seed: int, folder: Path, *, skews_ms: tuple[int, int], faults: bool):
    """Run a scenario; return the violations, the epochs completed, and each ingest's last one."""
    folder.mkdir()
    simulation = Clocked(
        make(kept=True), seed=seed, folder=folder, faults=faults, skews_ms=skews_ms
    )
    try:
        simulation.run()
        audit = Audit(simulation)
        last = {t: r["done"] for t, r in audit.newest.items() if t.startswith("ingest.")}
    finally:
        simulation.close()
    return dict(audit.found), simulation.completed, last


@pytest.mark.parametrize("skew_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("make", [apart, united])
def test_an_hour_between_clocks_is_never_wrong_and_epochs_go_on(make, skew_ms: int, tmp_path: Path):
    found, completed, last = trial(
        make, 1, tmp_path / "skewed", skews_ms=(0, skew_ms), faults=False
    )
    _, as_usual, _ = trial(make, 1, tmp_path / "equal", skews_ms=(0, 0), faults=False)
    assert found == {}
    assert completed > as_usual / 2
    ahead = (1_000_000 + max(skew_ms, 0)) // INTERVAL_MS  # when the scenario began
    assert min(last.values()) > ahead


@pytest.mark.parametrize("skew_ms", [HOUR_MS, -HOUR_MS])
def test_an_hour_between_clocks_is_never_wrong_whatever_dies(skew_ms: int, tmp_path: Path):
    found, _, _ = trial(apart, 2, tmp_path / "skewed", skews_ms=(0, skew_ms), faults=True)
    assert found == {}


class SetBack(Simulation):
    """Sets all clocks in the second act, and kills nobody."""

    def _second_act(self, tapes) -> None:
        for process in self.processes:
            process.kind = replace(process.kind, skew_ms=0)
        for _ in range(8):
            self._send(tapes, 2 * self.ticks)


@pytest.mark.parametrize("make", [apart, united])
def test_nothing_waits_for_a_clock_that_was_set_back(make, tmp_path: Path):
    simulation = SetBack(
        make(kept=True), seed=1, folder=tmp_path, faults=False, skews_ms=(0, 24 * HOUR_MS)
    )
    try:
        simulation.run()
        assert dict(Audit(simulation).found) == {}
    finally:
        simulation.close()
