"""Keys of running totals: every text has one value, and every value one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.wire.count_key import CountKey


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("read", CountKey("read")),
        ("totals.revised", CountKey("revised", "totals")),
        ("ratio-n.exchange.judged", CountKey("judged", "ratio-n.exchange")),
        ("totals.refused", CountKey("refused", "totals")),
        ("refused.event time", CountKey.of_reason("event time")),
        ("refused.closed", CountKey("closed", "refused")),
        ("refused.refused", CountKey("refused", "refused")),
        ("refused.a.b", CountKey.of_reason("a.b")),
    ],
)
def test_a_key_is_written_as_it_always_was(text, key):
    assert CountKey.parse(text) == key
    assert str(key) == text


@given(
    st.text() | st.lists(st.sampled_from(["refused", "closed", "a", ""]), max_size=4).map(".".join)
)
def test_a_text_comes_back_from_its_key(text):
    assert str(CountKey.parse(text)) == text
