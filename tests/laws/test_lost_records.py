"""Brokers lose committed records, and processes die: in the end it is as if nothing was lost.

What is compared is what the topics hold at the end with what follows from the records that were
sent. What epochs in between looked like is not compared: readers may have seen lost records.
"""

import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from errata import Network, hopping
from errata.processors.tasks import lost_records
from tests.laws.audit import _matches
from tests.laws.envelopes import PASSED, read
from tests.laws.networks import FRONT, SOURCE, SUMS, SUMS_ORACLE, _source, shape_of
from tests.laws.oracle import FOREVER, Tuple, contents
from tests.laws.process import Kind, Process
from tests.laws.simulation import Simulation
from tests.laws.sources import Intake

KEEP = 1_000_000
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", 24))
MODES = "upstream", "downstream", "resident"


def network(mode: str) -> Network:
    net = Network("tape")
    trades = _source(net, SOURCE, keep=KEEP)
    wanted = trades.where("wanted", "amount >= -1", scope="front")
    scaled = wanted.map("scaled", fields={"value": "amount * 2"}, keep=KEEP)
    by = {"by": ["product", "desk"], "window": hopping(12, every=8)}
    scaled.aggregate("sums", **by, mode=mode, scope="behind", keep=KEEP, fields=SUMS)
    return net


class Losing(Simulation):
    """A simulation in which partitions of arcs lose up to a third of their records."""

    def _start(self, kind: Kind, old: Process | None = None) -> Process:
        """Start a process; it finds its files: without its index it can't write records again."""
        self.lose = 0
        return super()._start(kind, old)

    def _advance_somebody(self) -> None:
        super()._advance_somebody()
        if self.faults is not None and self.rng.random() < 0.02:
            self._lose()

    def _end(self, place: int, how: str, *, zombie: bool = False) -> None:
        """End a process; its successor finds its index, which a zombie would hold."""
        super()._end(place, how)

    def clean(self, *, all_passed: bool = False) -> int:
        """Do nothing: what is compacted away would count as lost, however young it is here."""
        return 0

    def now_s(self) -> float:
        """The time by which tasks wait for what a transaction hides."""
        return self.now / 1000

    def _lose(self) -> None:
        places = [place for places in self.history.arcs.values() for place in places]
        place = self.rng.choice(places)
        log = self.cluster.log(place)
        end = log.end
        if log.last_stable_offset < end or not end:
            return  # no task can notice that the middle of its transaction is lost
        self.history.read()
        offset = end - self.rng.randint(1, max(1, end // 3))
        self.cluster.lose(place, offset)
        self.seen["ends lost"] += log.last_stable_offset < log.end
        known = self.history.positions[place]
        self.history.positions[place] = min(known, offset)
        self.seen["losses"] += 1


def sent(simulation: Simulation) -> dict[Any, Tuple]:
    """Return the tuples of the source by identity, from the records that were sent."""
    held: dict[Any, Tuple] = {}
    for records in simulation.tape[SOURCE]:
        intake = Intake(KEEP, simulation.shape.lateness, simulation.plan.reach_ms.get(SOURCE))
        lines = [read(record, "native") for record in records]
        intake.take([(n, line) for n, line in enumerate(lines) if line != PASSED])
        held |= {(key,): each for key, each in intake.held.items()}
    return held


def content(simulation: Simulation, arc: str) -> dict[Any, Tuple]:
    """Return the tuples of an arc by identity, from the records that its topic has now."""
    history, found = simulation.history, dict[Any, Tuple]()
    history.read()
    newest = {report["task"]: report for report in history.reports}
    for place in history.arcs[arc]:
        last: dict[Any, tuple[Any, Any]] = {}
        for row in history.present(place):
            if row.content is None:
                continue
            record = row.content
            committed = {c["attempt"]: c["epoch"] for c in newest[record["task"]]["committed"]}
            if record["epoch"] > committed.get(record["attempt"], -1):
                continue
            named = record["after"] or record["before"]
            key = tuple(named[name] for name in simulation.plan.topology.arcs[arc].identity)
            order = record["epoch"], record["op"] != "delete"
            if key not in last or last[key][0] <= order:
                last[key] = order, record["after"]
        alive = {key: after for key, (_, after) in last.items() if after is not None}
        assert not found.keys() & alive.keys()
        found |= alive
    return found


def differing(simulation: Simulation, arc: str, should: dict[Any, Any]) -> dict[Any, Any]:
    """Return what an arc holds and should hold, by key, where the two differ."""
    is_ = content(simulation, arc)
    return {
        key: (is_.get(key), should.get(key))
        for key in is_.keys() | should.keys()
        if not _matches(is_.get(key), should.get(key))
    }


SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_what_brokers_lose_is_written_again(seed: int) -> None:
    mode = MODES[seed % len(MODES)]
    sums = replace(SUMS_ORACLE, name="sums")
    shape = replace(shape_of(network(mode), (sums,)), keep=KEEP)
    often = mock.patch.multiple(
        lost_records, CHECKED_S=0 if seed % 2 else 1e9, FRESH_S=-1, YOUNGEST_MS=2**60
    )
    with tempfile.TemporaryDirectory() as folder, often:
        simulation = Losing(shape, seed=seed, folder=Path(folder), ticks=16)
        try:
            with mock.patch.object(lost_records, "monotonic", simulation.now_s):
                simulation.run()
            SEEN.update(simulation.seen)
            assert not simulation.seen["never quiet"], "Progress"
            wanted = contents((*FRONT, sums), {SOURCE: sent(simulation)}, FOREVER)
            for arc, should in wanted.items():
                if arc in simulation.plan.topology.topics:
                    assert not differing(simulation, arc, should), f"L1: {arc}"
        finally:
            simulation.close()


def test_records_were_lost_while_processes_died() -> None:
    assert SEEN["losses"] > 20, SEEN
    assert SEEN["ends lost"] > 10, SEEN
    assert SEEN["killed in a call"] > 20, SEEN
