"""All laws across a switch to another version of a plan, with processes that die at any time."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.laws.growing import Growing, growing
from tests.laws.networks import PARTITIONS, SHAPES
from tests.laws.switching import Switching, judged

FEW = 1
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", FEW))
MOST = 40
"""How many further seeds are tried for what happens by chance."""
seen = Counter[str]()


def trial(make: Callable[[Path], Switching]) -> dict:
    return judged(make, seen)


@pytest.mark.parametrize(("number", "make"), [*enumerate(SHAPES)])
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_laws_hold_across_a_switch(number, make, seed):
    shape, count = make(kept=(seed + number) % 2 == 0), (1, 3, 4)[(seed + number) % 3]
    found = trial(lambda folder: Switching(shape, count=count, seed=seed, folder=folder))
    assert found == {}


@pytest.mark.parametrize("seed", range(4 * EXAMPLES))
def test_laws_hold_when_tasks_come_back_in_a_later_switch(seed):
    shape = SHAPES[seed % len(SHAPES)](kept=seed // len(SHAPES) % 2 == 0)
    then = (PARTITIONS, 3)[seed % 2]
    found = trial(lambda folder: Switching(shape, count=1, then=then, seed=seed, folder=folder))
    assert found == {}


@pytest.mark.parametrize("seed", range(4 * EXAMPLES))
def test_laws_hold_for_boxes_that_a_network_gains_as_if_they_had_been_there_always(seed):
    check_growing(seed)


def check_growing(seed):
    (shape, old), count = growing(kept=seed % 2 == 0), (PARTITIONS, PARTITIONS, 3)[seed % 3]
    found = trial(lambda folder: Growing(shape, old, count=count, seed=seed, folder=folder))
    assert found == {}


def test_switches_died_and_met_those_who_were_slow_to_end():
    for seed in range(4 * EXAMPLES, 4 * EXAMPLES + MOST):
        if seen["filled again"]:
            break
        check_growing(seed)
    assert seen["killed in a switch"]
    assert seen["a switch ended by FencedError"] + seen["a switch ended by DoubtfulCommitError"]
    assert seen["fenced zombies"]
    assert seen["filled"] > 5
    assert seen["filled again"]
