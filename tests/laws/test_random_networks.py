"""The laws of docs/architecture.md on random networks, each with a random scenario.

``ERRATA_LAWS_EXAMPLES=300`` runs 300 networks instead of a few.
"""

import tempfile
from pathlib import Path

import pytest

from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.counting import Counting
from errata.processors.boxes.forward import Forward
from errata.processors.boxes.iterate import Iterate
from errata.processors.boxes.join import Join
from errata.processors.boxes.lookup import Lookup
from errata.processors.boxes.ordered import Ordered
from tests.laws.audit import Audit
from tests.laws.envelopes import ENVELOPES
from tests.laws.random_networks import random_shape
from tests.laws.replies import small_replies
from tests.laws.seeds import seeds
from tests.laws.simulation import Simulation
from tests.laws.spark_engine import few_of_each

FEW = 16
"""Among so many networks, drawn but not run, are those of every kind."""
SEEDS, SEEDS_OF_A_KIND = seeds(9, FEW), seeds(5, 9, share=0.6)
FEWER_SEEDS = seeds(4, 9, share=0.6)
"""The fifth network with loops takes two minutes."""
TICKS = 16


def judge(seed: int, **boxes: bool) -> None:
    """Run the network of a seed, and check that it breaks no law."""
    shape = random_shape(seed, **boxes)
    small = small_replies(seed)
    with tempfile.TemporaryDirectory() as folder, small, few_of_each():
        simulation = Simulation(shape, seed=seed, folder=Path(folder), ticks=TICKS)
        try:
            simulation.run()
            found = Audit(simulation).found
        except Exception as error:
            told = f"Progress: a process died of itself: {error}\n{shape.told}"
            raise AssertionError(told) from error
        finally:
            simulation.close()
    few = {law: [len(what), *what[:3]] for law, what in found.items()}
    assert not found, f"{few}\n{shape.told}"


@pytest.mark.parametrize("seed", SEEDS)
def test_laws_hold_in_a_random_network(seed):
    judge(seed)


@pytest.mark.parametrize("seed", SEEDS_OF_A_KIND)
def test_laws_hold_in_a_random_network_with_jobs_on_spark(seed):
    judge(seed, spark=True)


@pytest.mark.parametrize("seed", SEEDS_OF_A_KIND)
def test_laws_hold_in_a_random_network_with_boxes_placed_at_random(seed):
    judge(seed, placed=True, joins=seed % 2 == 0, rows=seed % 3 == 0, loops=seed % 5 == 4)


@pytest.mark.parametrize("seed", SEEDS_OF_A_KIND)
def test_laws_hold_in_a_random_network_with_joins(seed):
    judge(seed, joins=True)


@pytest.mark.parametrize("seed", SEEDS_OF_A_KIND)
def test_laws_hold_in_a_random_network_with_rows(seed):
    judge(seed, rows=True, joins=seed % 3 == 0)


@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_laws_hold_in_a_random_network_that_keeps_revisions_back(seed):
    kinds = [{}, {"joins": True}, {"rows": True, "joins": True}, {"loops": True}]
    judge(seed, significance=True, **kinds[seed % len(kinds)])


@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_laws_hold_in_a_random_network_that_keeps_revisions_back_on_spark(seed):
    judge(seed, significance=True, placed=True, joins=seed % 2 == 0, rows=seed % 3 == 0)


def test_a_few_networks_have_windows_that_count_and_lags_and_boxes_below_them():
    found = set()
    for seed in range(FEW):
        plan = random_shape(seed, rows=True, joins=seed % 3 == 0).plan
        for box in plan.boxes.values():
            kind = type(getattr(box, "window", box)).__name__
            if isinstance(box, Counting):
                kind = f"{kind} {'on_update' if box.on_update else 'on_close'}"
            above = [plan.boxes[arc] for arc in box.inputs if arc in plan.boxes]
            while above and isinstance(above[0], Forward):
                above = [plan.boxes[arc] for arc in above[0].inputs if arc in plan.boxes]
            if isinstance(box, Ordered):
                found.add(kind)
            found |= {f"{type(box).__name__} below {type(a).__name__}" for a in above}
    assert found >= {
        *("Lag", "SlidingRows on_close", "SlidingRows on_update"),
        *("HoppingRows on_close", "HoppingRows on_update"),
        *("Counting below Lag", "Lag below Counting", "Aggregate below Counting"),
        "Aggregate below Lag",
    }


@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_laws_hold_in_a_random_network_with_loops(seed):
    judge(seed, loops=True)


def test_a_few_networks_have_loops_and_lookups_of_every_kind():
    boxes = [
        box
        for seed in range(FEW)
        for box in random_shape(seed, loops=True).plan.boxes.values()
        if isinstance(box, Iterate | Lookup)
    ]
    loops = [box for box in boxes if isinstance(box, Iterate)]
    assert {(box.body.is_linear, bool(box.body.enters)) for box in loops} == {
        (False, False), (False, True), (True, False), (True, True),
    }  # fmt: skip
    assert {type(box).__name__ for loop in loops for box in loop.body.boxes} >= {
        *("Where", "Map", "Union", "Lookup", "Aggregate"),
    }
    lookups = [box for box in boxes if isinstance(box, Lookup)]
    assert {box.is_left for box in lookups} == {False, True}
    assert {box.arc.exchange for box in lookups} == {False, True}


def test_a_few_networks_have_joins_of_every_kind():
    boxes = [
        box
        for seed in range(FEW)
        for box in random_shape(seed, joins=True).plan.boxes.values()
        if isinstance(box, Join)
    ]
    assert {(box.is_left, box.shared is not None) for box in boxes} == {
        (False, False), (False, True), (True, False), (True, True),
    }  # fmt: skip


def test_a_few_networks_have_every_box_and_window():
    found = set()
    for seed in range(FEW):
        plan = random_shape(seed).plan
        found |= {f"rekey={source.rekey}" for source in plan.topology.sources.values()}
        found |= {f"from {source.envelope}" for source in plan.topology.sources.values()}
        found |= {f"to {sink.envelope} in {sink.format}" for sink in plan.topology.sinks}
        for box in plan.boxes.values():
            found.add(type(box).__name__)
            if isinstance(box, Aggregate):
                found |= {type(box.window).__name__, box.mode, f"on_update={box.on_update}"}
                found |= {f"tz={getattr(box.window, 'tz', None) is not None}"}
    assert found == {
        *("Where", "Map", "Union", "Forward", "Aggregate", "SlidingInOrder"),
        *("Hopping", "Sliding", "History", "tz=True", "tz=False"),
        *("upstream", "downstream", "resident", "on_update=True", "on_update=False"),
        *("rekey=True", "rekey=False"),
        *(f"from {envelope}" for envelope in ENVELOPES),
        *(f"to {envelope} in {form}" for envelope in ENVELOPES for form in ("avro", "json")),
    }
