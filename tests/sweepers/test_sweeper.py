"""A sweeper whose place in the topic is gone starts over."""

from errata import Network, tumbling
from errata.testing import Driver
from topics.cluster import LostOffsetError

MINUTE = 60_000


def test_a_sweeper_that_lost_its_offset_drops_its_copy_and_reads_the_topic_again():
    net = Network("lost")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)")

    def trade(key, minute, price):
        return {"op": "insert", "after": {"key": key, "at": minute * MINUTE, "price": price}}

    with Driver(net, mode="upstream") as driver:
        driver.send("trades", [trade("a", 1, 5), trade("b", 15, 1)])
        driver.close_epoch()
        sweeper = driver.sweepers["trades"]
        before, poll = sweeper.store, sweeper.input.reader.poll

        def lost(**_):
            raise LostOffsetError(sweeper.input.place, 1)

        sweeper.input.reader.poll = lost
        assert sweeper.follow()
        assert sweeper.store is not before
        assert sweeper.input.reader.poll is not poll
        driver.send("trades", trade("c", 2, 7))
        driver.close_epoch()
        assert [row["total"] for row in driver.table("sums")] == [12]
