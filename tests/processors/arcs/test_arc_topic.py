"""An arc's topic: only revisions of the arc, in its own schema, are read from it."""

from errata import Network
from errata.processors.arcs.arc_topic import Meta
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
