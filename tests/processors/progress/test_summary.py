"""Path summaries: monotone, associative, and the same as their paths one after another."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.progress.summary import Advance, SummaryError
from errata.processors.progress.timestamp import Epoch
from tests.processors.progress.times import IDENTITIES, LOWEST, summaries, times_of

DEPTHS = pytest.mark.parametrize("depth", [0, 2])


def no_later(one: Any, other: Any) -> bool:
    """None, where nothing gets through, is later than anything."""
    return other is None or (one is not None and one.less_equal(other))


def then(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one.followed_by(other)


@DEPTHS
@given(data=st.data())
def test_results_in_is_monotone_in_time_and_summary(depth: int, data: st.DataObject) -> None:
    a, b = data.draw(times_of(depth)), data.draw(times_of(depth))
    path, longer = data.draw(summaries(depth)), data.draw(summaries(depth))
    if a.less_equal(b):
        assert no_later(path.results_in(a), path.results_in(b))
    if path.less_equal(longer):
        assert no_later(path.results_in(a), longer.results_in(a))


@given(one=summaries(0), other=summaries(0))
def test_a_summary_is_before_another_exactly_if_no_result_is_later(
    one: Advance, other: Advance
) -> None:
    results = [(one.results_in(Epoch(n)), other.results_in(Epoch(n))) for n in range(20)]
    assert one.less_equal(other) == all(no_later(*pair) for pair in results)


@DEPTHS
@given(data=st.data())
def test_followed_by_is_monotone_in_both(depth: int, data: st.DataObject) -> None:
    a, b, c = (data.draw(summaries(depth)) for _ in range(3))
    if a.less_equal(b):
        assert no_later(then(a, c), then(b, c))
        assert no_later(then(c, a), then(c, b))


@DEPTHS
@given(data=st.data())
def test_followed_by_is_associative(depth: int, data: st.DataObject) -> None:
    a, b, c = (data.draw(summaries(depth)) for _ in range(3))
    assert then(then(a, b), c) == then(a, then(b, c))


@DEPTHS
@given(data=st.data())
def test_followed_by_gives_what_the_paths_give_one_after_the_other(
    depth: int, data: st.DataObject
) -> None:
    a, b, time = (
        data.draw(summaries(depth)),
        data.draw(summaries(depth)),
        data.draw(times_of(depth)),
    )
    both, between = then(a, b), a.results_in(time)
    expected = None if between is None else b.results_in(between)
    assert (None if both is None else both.results_in(time)) == expected


@DEPTHS
@given(data=st.data())
def test_only_what_lets_nothing_through_is_no_summary(depth: int, data: st.DataObject) -> None:
    a, b = data.draw(summaries(depth)), data.draw(summaries(depth))
    between = a.results_in(LOWEST[depth])
    assert between is not None
    assert (then(a, b) is None) == (b.results_in(between) is None)


@DEPTHS
@given(data=st.data())
def test_the_identity_changes_nothing_and_is_the_least(depth: int, data: st.DataObject) -> None:
    path, time, same = data.draw(summaries(depth)), data.draw(times_of(depth)), IDENTITIES[depth]
    assert same.results_in(time) == time
    assert then(same, path) == path == then(path, same)
    assert same.less_equal(path)
    assert no_later(time, path.results_in(time))


@DEPTHS
@given(data=st.data())
def test_a_summary_advances_if_no_time_comes_out_as_it_was(depth: int, data: st.DataObject) -> None:
    path, least = data.draw(summaries(depth)), LOWEST[depth]
    assert path.advances == (path.results_in(least) != least)


def test_a_bounded_loop_drops_what_goes_beyond() -> None:
    thrice = Advance(by=1, below=3)
    assert thrice.results_in(Epoch(1)) == 2
    assert thrice.results_in(Epoch(2)) is None
    assert Advance(by=1).followed_by(thrice) == Advance(by=2, below=3)
    assert Advance(by=2).followed_by(thrice) is None


@pytest.mark.parametrize("arguments", [(-1,), (3, 3), (0, 0)])
def test_a_path_that_goes_back_or_lets_nothing_through_is_refused(arguments: Any) -> None:
    with pytest.raises(SummaryError, match="must be at least 0 and smaller than"):
        Advance(*arguments)
