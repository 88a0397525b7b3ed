"""The networks of the campaign as a user declares them; `recompute.py` has them in plain Python."""

from errata import Network, Stream, hopping, tumbling

KEEP, KEPT = "30d", "31d"
"""How old tuples may be that are revised, and those that another network may replay."""
LATENESS_MS = 2_000
HOP_MS, HOP_SIZE_MS, TURN_MS = 2_000, 4_000, 12_000
"""Windows are short: many close, and are corrected, within a minute."""
CLIENT_MS = 5_000


def fills(*, partitions: int = 2, spark: bool = False) -> Network:
    """Fills of orders: a filter, one aggregate in both modes, and a second aggregate over it.

    Args:
        partitions: Of the aggregates.
        spark: Whether there are boxes on Spark, too: an aggregate, a lag, a join of results.
    """
    net = Network("fills")
    source = net.source(
        "fills", topic="fills.in", envelope="native", format="json", identity=["key"],
        event_time="at", lateness=LATENESS_MS, keep=KEEP, partition_by=["key"],
        fields={
            "key": "string", "at": "timestamp-millis", "product": "string", "n": "long",
            "price": "decimal(9,2)",
        },
    )  # fmt: skip
    wanted = source.where("wanted", "n >= 0", scope="front", keep=KEPT)
    for name, mode in (("sums", "upstream"), ("same", "downstream")):
        wanted.aggregate(
            name, by=["product"], window=hopping(HOP_SIZE_MS, every=HOP_MS), mode=mode,
            partitions=partitions, keep=KEEP, scope=name,
            fills="count(*)", total="sum(n)", paid="sum(n * price)", dearest="max(price)",
        )  # fmt: skip
    sums = Stream(net, "sums")
    turns = sums.aggregate(
        "turns", by=[], window=tumbling(TURN_MS), keep=KEPT, scope="turns", partitions=1,
        everything="sum(total)", best="max(total)", results="count(*)",
    )  # fmt: skip
    if spark:
        bars = source.aggregate(
            "bars", by=["product"], window=tumbling(HOP_SIZE_MS), place="spark", keep=KEEP,
            total="sum(n)", middle="percentile(n, 0.5)",
        )  # fmt: skip
        source.where("some", "n >= 0", place="spark").lag(
            "lagged", by=["product"], place="spark", keep=KEEP, was="n"
        )
        net.join(
            "gaps", {"b": bars, "s": sums}, on=["product", "window_start"], partitions=2,
            place="spark", keep=KEEP, gap="b.total - s.total",
        )  # fmt: skip
    wanted.sink("fills.wanted.out", envelope="native", format="json")
    sums.sink("fills.sums.out", envelope="upsert", format="json")
    turns.sink("fills.turns.out", envelope="debezium", format="json")
    return net


def orders(*, partitions: int = 2) -> Network:
    """Orders joined with rates: a source that is rekeyed, a join, two aggregates over it.

    Args:
        partitions: Of the join and the aggregates.
    """
    net = Network("orders")
    ordered = net.source(
        "ordered", topic="orders.in", envelope="upsert", format="json", identity=["id"],
        event_time="at", lateness=LATENESS_MS, keep=KEEP, rekey=True, partitions=2,
        fields={
            "id": "string", "at": "timestamp-millis", "symbol": "string", "client": "string",
            "quantity": "long",
        },
    )  # fmt: skip
    rates = net.source(
        "rates", topic="rates.in", envelope="debezium", format="json", identity=["symbol"],
        event_time="at", lateness=LATENESS_MS, keep=KEEP,
        fields={"symbol": "string", "at": "timestamp-millis", "rate": "decimal(9,4)"},
    )  # fmt: skip
    priced = net.join(
        "priced", {"o": ordered, "r": rates}, on=["symbol"], partitions=partitions, keep=KEEP,
        scope="priced", client="o.client", value="o.quantity * r.rate",
    )  # fmt: skip
    big = priced.where("big", "value >= 40")
    clients = big.aggregate(
        "clients", by=["client"], window=tumbling(CLIENT_MS), mode="upstream",
        partitions=partitions, keep=KEEP, scope="clients", orders="count(*)", worth="sum(value)",
    )  # fmt: skip
    every = clients.aggregate(
        "every", by=[], window=hopping(2 * CLIENT_MS, every=CLIENT_MS), mode="downstream",
        keep=KEEP, scope="every", worth="sum(worth)", most="max(orders)",
    )  # fmt: skip
    big.sink("orders.big.out", envelope="upsert", format="json")
    clients.sink("orders.clients.out", envelope="native", format="json")
    every.sink("orders.every.out", envelope="upsert", format="json")
    return net


def desks(*, partitions: int = 2) -> Network:
    """Aggregates over two arcs of `fills`, which are read where they are.

    Args:
        partitions: Of the aggregates.
    """
    net = Network("desks")
    wanted, turned = (
        net.source(f"{arc}_above", topic=f"fills.{arc}", envelope="arc", keep=KEEP)
        for arc in ("wanted", "turns")
    )
    options = {
        "by": ["product"], "window": tumbling(CLIENT_MS), "partitions": partitions, "keep": KEEP,
        "fills": "count(*)", "paid": "sum(n * price)",
    }  # fmt: skip
    desks = wanted.aggregate("desks", mode="upstream", scope="desks", **options)
    wanted.aggregate("again", mode="downstream", scope="again", **options)
    desks.aggregate(
        "best", by=[], window=tumbling(2 * CLIENT_MS), keep=KEEP, scope="best", paid="max(paid)"
    )
    rounds = turned.aggregate(
        "rounds", by=[], window=tumbling(2 * TURN_MS), keep=KEEP, scope="rounds",
        everything="sum(everything)", results="sum(results)",
    )  # fmt: skip
    desks.sink("desks.out", envelope="upsert", format="json")
    rounds.sink("rounds.out", envelope="native", format="json")
    return net
