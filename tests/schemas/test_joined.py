"""Byte strings in one buffer are the strings that they were."""

from hypothesis import given
from hypothesis import strategies as st

from errata.schemas.joined import Joined


@given(st.lists(st.binary(max_size=6)), st.integers(0, 7), st.integers(0, 9), st.integers(0, 9))
def test_strings_without_their_first_bytes_are_as_if_each_were_cut_alone(values, count, low, high):
    joined = Joined.of(values).after(count)
    cut = [value[count:] for value in values]
    assert list(joined) == cut
    assert list(joined[low:high]) == cut[low:high]
    assert Joined.of(joined) is joined
