"""Change batches against Counter."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from errata.processors.progress.change_batch import ChangeBatch

changes = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2)))


@given(changes)
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


@given(changes)
def test_draining_hands_over_everything_once(made: list[tuple[str, int]]) -> None:
    batch = ChangeBatch(made)
    held = dict(batch)
    assert dict(batch.drain()) == held
    assert batch.drain() == []
    assert not batch
