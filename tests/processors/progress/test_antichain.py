"""Frontiers of counted times against frontiers found anew."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from errata.processors.progress.antichain import MutableAntichain
from errata.processors.progress.timestamp import Epoch
from tests.processors.progress.times import Pair, minimal, times_of

changes = st.one_of(
    *(st.lists(st.lists(st.tuples(times_of(d), st.integers(-2, 2)), max_size=4)) for d in (0, 1))
)


@given(changes)
def test_a_mutable_antichain_tells_every_change_of_its_frontier(
    batches: list[list[tuple[Any, int]]],
) -> None:
    counted: MutableAntichain[Any] = MutableAntichain()
    counts: Counter[Any] = Counter()
    told: Counter[Any] = Counter()
    for batch in batches:
        for time, diff in batch:
            counts[time] += diff
        before = set(told.elements())
        for time, diff in counted.update_iter(batch):
            assert diff == (-1 if time in before else 1)
            told[time] += diff
        expected = minimal(time for time, count in counts.items() if count > 0)
        assert set(told.elements()) == expected
        assert list(counted.frontier) == sorted(expected)


def test_a_count_below_zero_is_made_up_for_before_its_time_is_in_the_frontier() -> None:
    counted: MutableAntichain[Epoch] = MutableAntichain()
    assert counted.update_iter([(Epoch(4), -2)]) == []
    assert counted.update_iter([(Epoch(4), 2)]) == []
    assert counted.update_iter([(Epoch(4), 1)]) == [(Epoch(4), 1)]


def test_updates_made_together_are_told_as_one_change() -> None:
    counted: MutableAntichain[Epoch] = MutableAntichain()
    counted.update_iter([(Epoch(1), 1), (Epoch(3), 1)])
    assert counted.update_iter([(Epoch(1), -1), (Epoch(2), 1)]) == [(Epoch(1), -1), (Epoch(2), 1)]
    assert counted.update_iter([(Epoch(2), -1), (Epoch(2), 1)]) == []


def test_a_frontier_may_hold_several_times() -> None:
    counted: MutableAntichain[Pair] = MutableAntichain()
    ahead, behind = Pair(Epoch(0), Epoch(2)), Pair(Epoch(1), Epoch(0))
    assert counted.update_iter([(behind, 1), (ahead, 1)]) == [(ahead, 1), (behind, 1)]
    assert counted.frontier == (ahead, behind)
