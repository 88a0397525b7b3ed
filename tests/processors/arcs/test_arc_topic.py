"""An arc's topic: what is read from it."""

import pytest

from errata import Network
from errata.processors.arcs.arc_topic import ArcInput, Meta
from errata.testing import Driver
from errata.topics.cluster import Records, TopicPartition


def test_strangers_records_and_tombstones_in_an_arcs_topic_are_passed_over():
    net = Network("strange")
    fields = {"key": "string", "at": "timestamp-millis"}
    net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": {"key": "a", "at": 5}})
        driver.close_epoch()
        codec = driver.shared.codec("trades")
        place = TopicPartition(codec.topic, 0)
        (records,) = driver.cluster.reader({place: 0}).poll()
        (ours,) = records.values
        values = [b"{}", None, ours, b"\x00\x7f\x7f\x7f\x7fxx", ours[:-1], b"", ours]
        count = len(values)
        strange = Records(place, list(range(count)), [b""] * count, values, [0] * count)
        found = codec.decode(strange)
        assert found["offset"].to_list() == [2, 6]
        frame = found.drop("task", "attempt", "epoch", "offset")
        meta = Meta(found["task"][0], found["attempt"][0], found["epoch"][0])
        assert codec.values(frame, meta) == [ours, ours]


@pytest.mark.parametrize(
    "meta",
    [
        Meta("stranger.0", 1, 10**6),
        Meta("ingest.trades.0", 1, 2**61),
        Meta("ingest.trades.0", 2**63 - 1, 10**6),
    ],
)
def test_a_record_that_no_report_will_ever_cover_is_not_held(meta):
    net = Network("strange")
    fields = {"key": "string", "at": "timestamp-millis"}
    net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": {"key": "a", "at": 5}})
        driver.close_epoch()
        codec = driver.shared.codec("trades")
        place, view = TopicPartition(codec.topic, 0), driver.shared.view
        (records,) = driver.cluster.reader({place: 0}).poll()
        frame = codec.decode(records).drop("task", "attempt", "epoch", "offset")
        keys, values = codec.encode(frame, meta)
        driver.cluster.send(codec.topic, partition=0, key=keys[0], value=values[0])
        driver.send("trades", {"op": "insert", "after": {"key": "b", "at": 6}})
        driver.close_epoch()
        reader = ArcInput(view, codec, 0, done=-1, resume=0)
        while reader.poll():
            pass
        assert reader.take(2)["after.key"].to_list() == ["a", "b"]
        assert reader.drop(2) == view.complete("trades", 0)[1]
        assert reader.pending == []
        reader.close()
