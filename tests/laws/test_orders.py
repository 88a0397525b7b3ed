"""The order in which a scope's boxes run does not change what they write."""

import os
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from errata.processors.propagation.orders import ORDERS
from tests.laws.audit import Audit
from tests.laws.random_networks import random_shape
from tests.laws.simulation import Simulation
from tests.plans import with_topology

# With several boxes in a scope: junctions, chains and aggregates, aggregates that share requests.
FEW = [(19, False), (6, True), (21, True)]
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", 0))
TICKS = 10


@cache
def written(order: str, seed: int, joins: bool) -> dict[str, list[list[dict[str, object]]]]:
    """Return the final content of each arc's partitions, in a scenario without faults."""
    shape = random_shape(seed, joins=joins)
    scopes = {
        name: replace(scope, order=order) for name, scope in shape.plan.topology.scopes.items()
    }
    shape = replace(shape, plan=with_topology(shape.plan, scopes=scopes))
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(shape, seed=seed, folder=Path(folder), ticks=TICKS, faults=False)
        try:
            simulation.run()
            audit = Audit(simulation)
        finally:
            simulation.close()
    assert not audit.found, f"{dict(audit.found)}\n{shape.told}"
    return {
        arc: [sorted(revisions, key=repr) for revisions in partitions]
        for arc, partitions in audit.revisions.items()
    }


@pytest.mark.parametrize("order", [order for order in ORDERS if order != "static"])
@pytest.mark.parametrize(("seed", "joins"), FEW + [(seed, True) for seed in range(EXAMPLES)])
def test_l1_a_random_network_writes_the_same_in_every_order(order, seed, joins):
    assert written(order, seed, joins) == written("static", seed, joins)
