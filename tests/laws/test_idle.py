"""A partition that was idle comes back behind the watermark, which does not fall."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.laws.audit import Audit
from tests.laws.networks import apart, united
from tests.laws.simulation import STEPS_A_TICK, Simulation
from tests.laws.tape import Line, Tape


class Thin(Tape):
    """A tape that can be restricted to one product."""

    only: str | None = None

    def line(self, now: int, partition: int | None = None) -> Line:
        while True:
            line = super().line(now, partition)
            told = line.content if isinstance(line.content, dict) else {}
            tuples = [told[side] for side in ("before", "after") if told.get(side)]
            if self.only is None or all(t["product"] == self.only for t in tuples):
                return line


class Returning(Simulation):
    """The second partition becomes idle, and then continues where it was.

    Meanwhile the boxes get tuples of one product only. The tasks of other products have nothing to
    do, and have not reported the watermark when they get input again.
    """

    def _first_act(self, tapes: dict[str, Tape]) -> None:
        third, times = self.ticks // 3, [0, 0]
        for tick in range(self.ticks):
            is_away = tick // third == 1
            for tape in tapes.values():
                tape.only = "yam" if third <= tick < 2 * third + 4 else None
            for partition in (0,) if is_away else (0, 1):
                times[partition] += 4 if is_away else 1
                self._send(tapes, times[partition], partition)
            for _ in range(4 * STEPS_A_TICK):
                self.step += 1
                self._advance_somebody()


@pytest.mark.parametrize(("seed", "faults"), [(0, False), (3, False), (0, True), (1, True)])
@pytest.mark.parametrize("make", [apart, united])
def test_the_watermark_stays_when_a_partition_comes_back_behind_it(
    make, seed: int, faults: bool, tmp_path: Path
):
    shape = replace(make(kept=True), tape=Thin)
    simulation = Returning(shape, seed=seed, folder=tmp_path, faults=faults, ticks=42)
    try:
        simulation.run()
        assert dict(Audit(simulation).found) == {}
    finally:
        simulation.close()
