"""Antichains and change batches against all pairs, frontiers against frontiers found anew."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from errata.processors.progress.antichain import Antichain, ChangeBatch, MutableAntichain
from errata.processors.progress.timestamp import Epoch, Product
from tests.processors.progress.times import minimal, times_of

some_times = st.one_of(st.lists(times_of(0)), st.lists(times_of(1)))
changes = st.one_of(
    *(st.lists(st.lists(st.tuples(times_of(d), st.integers(-2, 2)), max_size=4)) for d in (0, 1))
)


@given(some_times)
def test_an_antichain_holds_the_minimal_elements(times: list[Any]) -> None:
    chain = Antichain(times)
    assert set(chain) == minimal(times)
    assert len(chain) == len(set(chain))
    assert all(chain.less_equal(time) for time in times)


@given(some_times)
def test_insert_says_whether_it_changed_anything(times: list[Any]) -> None:
    chain: Antichain[Any] = Antichain()
    for number, time in enumerate(times):
        before = set(chain)
        assert chain.insert(time) == (minimal(times[: number + 1]) != before)


@given(st.data(), some_times)
def test_equality_does_not_look_at_order(data: st.DataObject, times: list[Any]) -> None:
    other = data.draw(st.permutations(times))
    assert Antichain(times) == Antichain(other)
    if times:
        assert (Antichain(times) == Antichain(times[1:])) == (minimal(times) == minimal(times[1:]))


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
        assert bool(counted) == bool(expected)
        assert all(counted.less_equal(t) == any(f.less_equal(t) for f in expected) for t in counts)


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
    counted: MutableAntichain[Product[Epoch, Epoch]] = MutableAntichain()
    ahead, behind = Product(Epoch(0), Epoch(2)), Product(Epoch(1), Epoch(0))
    assert counted.update_iter([(behind, 1), (ahead, 1)]) == [(ahead, 1), (behind, 1)]
    assert counted.frontier == (ahead, behind)


item_changes = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2)))


@given(item_changes)
def test_a_batch_holds_the_sum_of_an_items_changes_and_no_zero(
    made: list[tuple[str, int]],
) -> None:
    batch = ChangeBatch(made[:2])
    for item, diff in made[2:]:
        batch.update(item, diff)
    counts: Counter[str] = Counter()
    for item, diff in made:
        counts[item] += diff
    expected = {item: count for item, count in counts.items() if count}
    assert dict(batch) == expected
    assert len(batch) == len(expected)
    assert [batch.count(item) for item in "abc"] == [counts[item] for item in "abc"]


@given(item_changes)
def test_draining_hands_over_everything_once(made: list[tuple[str, int]]) -> None:
    batch = ChangeBatch(made)
    held = dict(batch)
    assert dict(batch.drain()) == held
    assert batch.drain() == []
    assert not batch
