"""Hostile records of every kind, a short form; `make hostile` is the long one."""

import pytest

from tests.faults import hostile


@pytest.mark.parametrize("topic", hostile.TOPICS)
def test_a_hostile_record_is_a_dead_letter_or_ignored_and_spoils_no_other(topic):
    of_network = topic.split(" that ")[0] in hostile.hostile_network.KINDS
    counts, faults = hostile.judged(topic, seed=1, records=200 if of_network else 700)
    assert faults == []
    assert counts["records"] >= 200


def test_every_topic_gets_its_share():
    pieces = hostile.pieces(100_000, list(hostile.TOPICS))
    assert {topic for topic, _, _ in pieces} == set(hostile.TOPICS)
    assert 99_000 < sum(records for _, _, records in pieces) <= 100_000
