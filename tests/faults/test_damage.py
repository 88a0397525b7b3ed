"""Random damage to local state, a short form; `python -m tests.faults.damage` is the long one."""

import pytest

from tests.faults import damage

ROUNDS = [0, 6, 9, 13, 18, 22, 23, 33, 35, 42]
"""Of each kind of damage about one, of an index and of a copy, at rest and while it is open."""


@pytest.mark.parametrize("number", ROUNDS)
def test_damage_to_local_state_is_noticed_or_without_effect(number):
    assert damage.apart(1, number) == ""


def test_the_rounds_damage_all_in_all_ways():
    every = {damage.choices(number) for number in range(48)}
    assert len(every) == 48
    assert {how for _, how, _ in every} == set(damage.DAMAGE)
