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

from errata import Network, Stream, hopping
from errata.processors.tasks import lost_records
from tests.laws.at_rest import content, differing, sent, sunk
from tests.laws.networks import SOURCE, SUMS, SUMS_ORACLE, Shape, _source, shape_of
from tests.laws.oracle import FOREVER, Join, Where, contents
from tests.laws.process import Kind, Process
from tests.laws.simulation import Simulation

KEEP = 1_000_000
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", 24))
MODES = "upstream", "downstream", "resident"


SUMS_OF_ALL = replace(SUMS_ORACLE, name="sums")


def summed(net: Network, mode: str, **options: Any) -> Stream:
    """Declare a source and, behind it, an aggregate; return the source."""
    trades = _source(net, SOURCE, keep=KEEP, **options)
    wanted = trades.where("wanted", "amount >= -1", scope="front")
    scaled = wanted.map("scaled", fields={"value": "amount * 2"}, keep=KEEP)
    scaled.aggregate(
        "sums", by=["product", "desk"], window=hopping(12, every=8), mode=mode, scope="behind",
        keep=KEEP, fields=SUMS,
    )  # fmt: skip
    return trades


def alone(mode: str, net: Network | None = None) -> Shape:
    """A source whose tasks write to one partition each."""
    net = net or Network("tape")
    summed(net, mode)
    return replace(shape_of(net, (SUMS_OF_ALL,)), keep=KEEP)


def joined(mode: str, net: Network | None = None) -> Shape:
    """A source whose tasks write to all partitions, joined with another; results go to sinks."""
    net = net or Network("tape")
    trades = summed(net, mode, rekey=True, partition_by=["desk"])
    more = _source(net, "more", keep=KEEP)
    pairs = net.join(
        "pairs", {"l": trades, "r": more}, on=["product"], partitions=3, keep=KEEP,
        scope="pairs", fields={"size": "l.size", "price": "r.amount"},
    )  # fmt: skip
    dear = pairs.where("dear", "price >= 1")
    for stream in (Stream(net, "sums"), pairs, dear):
        stream.sink(f"{stream.name}.out", envelope="upsert", format="json")
    boxes = (
        SUMS_OF_ALL,
        Join(
            "pairs", (SOURCE, "more"), ("product",), is_left=False,
            identities=(("key",), ("key",)), times=("at", "at"),
            results={"size": lambda left, _: left["size"], "price": lambda _, r: r["amount"]},
        ),
        Where("dear", "pairs", lambda t: t["price"] is not None and t["price"] >= 1),
    )  # fmt: skip
    return replace(shape_of(net, boxes), keep=KEEP)


SHAPES = alone, joined


class Losing(Simulation):
    """A simulation in which partitions of arcs lose up to a third of their records."""

    def _start(self, kind: Kind, old: Process | None = None) -> Process:
        """Start a process; it finds its files: without its index it can't write records again."""
        self.lose = 0
        return super()._start(kind, old)

    def _advance_somebody(self) -> None:
        super()._advance_somebody()
        if self.faults is not None and self.rng.random() < 0.05:
            self._lose()

    def _end(self, place: int, how: str, *, zombie: bool = False) -> None:
        """End a process; its successor finds its index, which a zombie would hold."""
        super()._end(place, how)

    def clean(self, *, all_passed: bool = False) -> int:
        """Do nothing: what is compacted away would count as lost, however young it is here."""
        return 0

    def drain(self) -> None:
        """Come to rest; whatever is still lost is noticed by then."""
        with mock.patch.object(lost_records, "CHECKED_S", 0):
            super().drain()

    def _lose(self) -> None:
        arcs = self.plan.topology.arcs  # a task whose exchange has lost records stops, and says so
        known = self.history.arcs.items()
        places = [at for arc, own in known if arcs[arc].is_connection_point for at in own]
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


SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_what_brokers_lose_is_written_again(seed: int) -> None:
    shape = SHAPES[seed // 2 % 2](MODES[seed % len(MODES)])
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
            topology = simulation.plan.topology
            sources = {source: sent(simulation, source) for source in topology.sources}
            wanted = contents(shape.boxes, sources, FOREVER)
            for arc, should in wanted.items():
                if arc in topology.topics:
                    found = content(simulation, arc)
                    assert not differing(found, should), f"L1: {arc}"
                for sink in topology.sinks_of(arc):
                    found, shown = sunk(simulation, sink), topology.arcs[arc].visible
                    should = {key: {n: t[n] for n in shown} for key, t in should.items()}
                    assert not differing(found, should), f"L6: {arc}"
        finally:
            simulation.close()


def test_records_were_lost_while_processes_died() -> None:
    assert SEEN["losses"] > 20, SEEN
    assert SEEN["ends lost"] > 10, SEEN
    assert SEEN["killed in a call"] > 20, SEEN
