"""The names of topics."""

import pytest

from errata.topics import names
from errata.topics.names import TopicNameError


def test_each_topic_of_a_network_has_the_name_that_the_design_gives_it():
    assert [
        names.arc_topic("tape", "trades"),
        names.exchange_topic("tape", "totals"),
        names.progress_topic("tape"),
        names.requests_topic("tape", "trades"),
        names.replay_topic("tape", "main"),
        names.dead_letters_topic("tape"),
        names.plan_topic("tape"),
        names.SCHEMAS_TOPIC,
    ] == [
        "tape.trades",
        "tape.totals.exchange",
        "tape.progress",
        "tape.trades.requests",
        "tape.main.replay",
        "tape.dead-letters",
        "tape.plan",
        "_errata_schemas",
    ]


@pytest.mark.parametrize("arc", ["", "a.b", "a b", "ä", "progress", "plan", "x" * 250])
def test_a_name_that_would_clash_or_that_kafka_refuses_is_refused(arc):
    with pytest.raises(TopicNameError, match="choose another"):
        names.arc_topic("tape", arc)
