"""Names of arcs: every text has one value, and every value one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.plan.arc_name import ArcName, exchange_of, owner_of, read_by, sink_of

PARTS = st.sampled_from(["sums", "-", "sink", ".exchange", ".", "owner"])


@pytest.mark.parametrize(
    ("text", "name", "is_sink"),
    [
        ("sums", ArcName("sums"), False),
        ("sums.exchange", ArcName("sums", is_exchange=True), False),
        ("sums-sink", ArcName("sums", "sink"), True),
        ("sums-sink.exchange", ArcName("sums", "sink", is_exchange=True), False),
        ("ratio-n.exchange", ArcName("ratio", "n", is_exchange=True), False),
    ],
)
def test_a_name_is_written_as_it_always_was(text, name, is_sink):
    assert ArcName.parse(text) == name
    assert str(name) == text
    assert name.is_sink == is_sink


@given(st.text() | st.lists(PARTS, max_size=5).map("".join))
def test_a_text_comes_back_from_its_name(text):
    assert str(ArcName.parse(text)) == text


def test_names_are_made_of_names():
    assert exchange_of(sink_of("sums")) == "sums-sink.exchange"
    assert read_by("sums-sink.exchange") == "sums-sink"
    assert read_by("sums") == "sums"
    assert owner_of("sums-sink.exchange") == "sums"
