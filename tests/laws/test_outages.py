"""Tasks of boxes are away for longer than superseded records are kept, and catch up.

Meanwhile the sources go on, the cleaner removes all superseded records, and what keeps no history
is gone: exchanges too. In the end every arc is what follows from the records that were sent.
"""

import os
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from errata import Network, hopping, tumbling
from errata.processors.compile.sources_and_sinks import SINK_ENVELOPES, SINK_FORMATS
from tests.laws import process
from tests.laws.at_rest import content, differing, sent
from tests.laws.networks import (
    FIRST,
    FIRST_ORACLE,
    FRONT,
    SECOND,
    SECOND_ORACLE,
    SOURCE,
    _source,
    shape_of,
)
from tests.laws.oracle import FOREVER, contents
from tests.laws.simulation import Simulation
from tests.laws.sinks import SinkAudit

KEEP = 1_000_000
MODES = "upstream", "downstream", "resident", "adaptive"
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", 16))


def network(mode: str, *, kept: bool, envelope: str, format: str) -> Network:
    """Two aggregates, each behind an exchange; the first keeps its results or not.

    What a filter lets pass, and the results of the first, also go to sinks: the former alone behind
    an exchange, the latter to no other topic if they are not kept.
    """
    net = Network("tape")
    trades = _source(net, SOURCE, keep=KEEP)
    wanted = trades.where("wanted", "amount >= -1", scope="front")
    scaled = wanted.map("scaled", fields={"value": "amount * 2"})
    first = scaled.aggregate(
        "first",
        by=["desk"],
        window=tumbling(8),
        mode=mode if kept or mode != "downstream" else "upstream",
        scope="first",
        keep=KEEP if kept else None,
        fields=FIRST,
    )
    wanted.sink("wanted-out", envelope=envelope, format=format)
    first.sink("first-out", envelope=envelope, format=format)
    first.aggregate(
        "second",
        by=["desk"],
        window=hopping(24, every=12),
        mode=mode,
        scope="second",
        keep=KEEP,
        fields=SECOND,
    )
    return net


class Away(Simulation):
    """Some processes end and come back after a while; of those of the sources one at most.

    That one comes back after the others: its epochs end long before those that the others, by then
    compacted, begin with.
    """

    def _second_act(self, tapes) -> None:
        late: int | None = None
        for place in range(len(self.processes)):
            self._end(place, "killed at rest")
        for place, known in enumerate(self.processes):
            what = {kind.what for kind in known.kind.parts or (known.kind,)}
            is_away = "ingest" not in what and self.rng.random() < 0.7
            self.down[place] = 10**9 if is_away else 0
            if "ingest" in what and self.rng.random() < 0.3:
                late = place
        if late is not None:
            self.down[late] = 10**9
        self.lose, self.faults = 1.0, None
        for tick in range(6):
            for _ in range(5):
                self._send(tapes, 2 * (self.ticks + tick))
            for _ in range(60):
                self.step += 1
                self._advance_somebody()
        self.now += 1_000_000  # what comes later is younger than what the cleaner has taken
        self.seen["records compacted away"] += self.clean(all_passed=True)
        for arc, places in self.history.arcs.items():
            if not self.plan.topology.arcs[arc].is_connection_point and arc != "second":
                for place in places:
                    self.cluster.delete_before(place, self.cluster.end(place))
        for place in self.down:
            if place != late:
                self.down[place] = 0
        for _ in range(400 if late is not None else 0):
            self.step += 1
            self._advance_somebody()
        for _ in range(3):
            self._send(tapes, 2 * (self.ticks + 6))


SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_a_network_that_was_away_catches_up(seed: int) -> None:
    mode, kept = MODES[seed % 4], seed % 5 < 3
    first = replace(FIRST_ORACLE, by=("desk",))
    second = replace(SECOND_ORACLE, name="second", by=("desk",))
    boxes = first, second
    envelope, format = SINK_ENVELOPES[seed // 2 % 3], SINK_FORMATS[seed % 2]
    net = network(mode, kept=kept, envelope=envelope, format=format)
    shape = shape_of(net, boxes)
    shape = replace(shape, keep=KEEP)
    short = mock.patch.object(process, "NEVER_COMPACTED_MS", 100_000)
    with tempfile.TemporaryDirectory() as folder, short:
        simulation = Away(shape, seed=seed, folder=Path(folder), ticks=16)
        try:
            simulation.run()
            assert not simulation.seen["never quiet"], "Progress"
            SEEN.update(simulation.seen)
            wanted = contents((*FRONT, *boxes), {SOURCE: sent(simulation, SOURCE)}, FOREVER)
            for arc, should in wanted.items():
                if arc in simulation.plan.topology.topics and (arc != "first" or kept):
                    assert not differing(content(simulation, arc), should), f"L1: {arc}"
            found: dict[str, list[str]] = defaultdict(list)
            SinkAudit(simulation, wanted, found)
            assert not found
            counts = [report["counts"] for report in simulation.history.reports]
            SEEN["rebuilt"] += any(each.get("rebuilt") for each in counts)
            SEEN["passed on"] += any("rebuilt_epoch" in each for each in counts)
        finally:
            simulation.close()


def test_tasks_were_rebuilt() -> None:
    assert SEEN["rebuilt"] > EXAMPLES // 3, SEEN
    assert SEEN["passed on"], SEEN
