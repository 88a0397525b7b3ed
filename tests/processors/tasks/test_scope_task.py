"""What is reported grows with the work that is done, not with the number of boxes."""

from errata import Network, Stream, tumbling
from errata.testing import Driver
from errata.topics import names
from errata.topics.cluster import TopicPartition

BUSY, EPOCHS = 5, 5
MINUTE = 60_000


def many(products: int) -> Network:
    """A filter in one scope and an aggregate in a scope of its own, for each product."""
    net = Network("many")
    trades: Stream = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "product": "long", "size": "long"},
        identity=["key"],
        event_time="at",
        keep="1d",
        partition_by=["product"],
    )
    for product in range(products):
        own = trades.where(f"own{product}", f"product = {product}", scope="front", keep="1d")
        own.aggregate(
            f"sum{product}",
            by=["product"],
            window=tumbling("1m"),
            scope=f"s{product}",
            s="sum(size)",
        )
    return net


def written(driver: Driver) -> list[str]:
    """Return the tasks of all reports, oldest first."""
    reader = driver.cluster.reader({TopicPartition(names.progress_topic("many"), 0): 0})
    found: list[str] = []
    while records := reader.poll():
        found += [str(key, "utf-8") for part in records for key in part.keys if key is not None]
    reader.close()
    return found


def reports_of(products: int) -> list[list[str]]:
    """Return who reported in each epoch, in which a few products have a trade."""
    with Driver(many(products)) as driver:
        found, before = [], len(written(driver))
        for epoch in range(EPOCHS):
            for product in range(BUSY):
                trade = {"key": f"{epoch}-{product}", "product": product, "size": 1}
                trade["at"] = epoch * MINUTE // 2
                driver.send("trades", {"op": "insert", "after": trade})
            driver.close_epoch()
            every = written(driver)
            found.append(sorted(every[before:]))
            before = len(every)
        assert driver.table("sum0")[0]["s"] == 2
    return found


def test_of_a_thousand_boxes_only_those_with_work_report():
    busy = sorted(["ingest.trades.0", "front.0", *(f"s{product}.0" for product in range(BUSY))])
    assert reports_of(500) == reports_of(BUSY) == [busy] * EPOCHS
