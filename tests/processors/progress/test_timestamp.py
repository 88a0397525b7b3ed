"""Epochs, and the summaries of paths that advance them: their laws."""

import pytest
from hypothesis import given

from errata.processors.progress.timestamp import IDENTITY, Advance, Epoch, SummaryError
from tests.processors.progress.times import advances, epochs


@given(epochs, epochs)
def test_epochs_are_ordered_as_their_numbers(a: Epoch, b: Epoch) -> None:
    assert a.less_equal(b) == (int(a) <= int(b))
    assert (a < b) == (int(a) < int(b))


@given(advances, epochs, epochs)
def test_a_path_keeps_the_order_of_times_and_makes_none_earlier(
    path: Advance, a: Epoch, b: Epoch
) -> None:
    assert a.less_equal(path.results_in(a))
    if a.less_equal(b):
        assert path.results_in(a).less_equal(path.results_in(b))


@given(advances, epochs)
def test_a_summary_advances_if_no_time_comes_out_as_it_was(path: Advance, time: Epoch) -> None:
    assert path.advances == (path.results_in(time) != time)


@given(epochs)
def test_the_identity_changes_nothing(time: Epoch) -> None:
    assert IDENTITY.results_in(time) == time


def test_a_path_that_goes_back_is_refused() -> None:
    with pytest.raises(SummaryError, match="must be at least 0"):
        Advance(-1)
