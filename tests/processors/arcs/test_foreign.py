"""Records of strangers in topics that only tasks write: passed over, logged and counted."""

import logging

import polars as pl
import pytest

from errata import Network, tumbling
from errata.processors.arcs.foreign import LOG_S, ForeignRecords
from errata.processors.boxes.replay import ReplayQuery
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.wire import replay
from errata.processors.wire.replay import Reply, Requester, pack
from errata.schemas.fields import physical
from errata.testing import Driver
from errata.topics.cluster import TopicPartition

PLACE = TopicPartition("tape.sums", 1)
FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long"}


def network() -> Network:
    net = Network("tape")
    trades = net.source("trades", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)", scope="sums")
    return net


def insert(key: str) -> dict:
    return {"op": "insert", "after": {"key": key, "at": 60_000, "price": 1}}


def test_they_are_logged_once_a_minute_with_the_place_of_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    foreign = ForeignRecords(clock_s=lambda: now_s)
    with caplog.at_level(logging.WARNING):
        foreign.add(PLACE, 7, "no revision of arc 'sums'", count=2)
        foreign.add(PLACE, 8, "no revision of arc 'sums'")
        assert (foreign.taken(), foreign.is_news, foreign.taken()) == (3, False, 0)
        now_s = LOG_S
        foreign.add(PLACE, 9, "garbage")
    assert caplog.messages == [
        "2 records that no task can have written are passed over; the last, partition 1 and offset "
        "7 of topic tape.sums: no revision of arc 'sums'; check who may write there",
        "2 records that no task can have written are passed over; the last, partition 1 and offset "
        "9 of topic tape.sums: garbage; check who may write there",
    ]
    assert foreign.is_news


def test_a_task_counts_those_of_its_input_even_if_nothing_else_arrives() -> None:
    with Driver(network()) as driver:
        driver.send("trades", insert("a"))
        driver.close_epoch()
        topic = driver.plan.deployment.topic("trades")
        for _ in range(2):
            driver.cluster.send(topic, partition=0, key=b"k", value=b"garbage")
        driver.close_epoch()
        assert driver.shared.view.of("sums.0").counts["foreign"] == 2
        driver.cluster.send(topic, partition=0, key=b"k", value=b"garbage")
        driver.send("trades", insert("c"))
        driver.close_epoch()
        assert driver.shared.view.of("sums.0").counts["foreign"] == 3


@pytest.mark.parametrize("kind", ["garbage", "block", "ranges", "fields"])
def test_a_reply_that_no_sweeper_can_have_sent_is_counted_and_the_true_one_taken(kind) -> None:
    with Driver(network()) as driver:
        driver.send("trades", insert("a"))
        driver.close_epoch()
        client = TopicReplayClient(driver.shared, scope="sums", partition=0)
        empty = pl.DataFrame(schema=physical(driver.plan.topology.arcs["trades"].fields))
        ranges = pl.DataFrame({"from_ms": [0], "to_ms": [1]})
        query = ReplayQuery("trades", 1, ranges, False)
        fetch = client.fetch([query], task="sums.0", attempt=1, epoch=1)
        next(fetch)
        true = Reply(Requester("sums.0", 1, 1), 1, 5, 0, 1, None, tuples=pack(empty))
        lies = {
            "garbage": b"garbage",
            "block": replay.encode(Reply(**vars(true) | {"block": 3}), schema_id=1),
            "ranges": replay.encode(Reply(**vars(true) | {"tuples": b"x"}), schema_id=1),
            "fields": replay.encode(
                Reply(**vars(true) | {"tuples": pack(empty.drop("price"))}), schema_id=1
            ),
        }
        for value in (lies[kind], replay.encode(true, schema_id=1)):
            driver.cluster.send(client.place.topic, partition=0, key=None, value=value)
        with pytest.raises(StopIteration) as done:
            next(fetch)
        assert [frame.height for frame in done.value.value] == [0]
        assert client.foreign.pending == 1
        client.close()
