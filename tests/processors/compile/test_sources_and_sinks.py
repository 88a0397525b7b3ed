"""What stands in a user's topic is what the arc holds, in every envelope and format."""

import io
import json
from datetime import UTC, datetime, timedelta

import fastavro
import pytest

from errata import Network, NetworkError, tumbling
from errata.processors.compile.compiler import compile_network
from errata.schemas import framing
from errata.testing import Driver
from errata.topics.cluster import TopicPartition

FIELDS = {"key": "string", "at": "timestamp-millis", "desk": "string", "price": "decimal(9,2)"}


def network(**sink):
    net = Network("sunk")
    trades = net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", partition_by=["desk"], keep="1d"
    )
    trades.sink("out.trades", **sink)
    sums = trades.aggregate(
        "sums", by=["desk"], window=tumbling("1m"), total="sum(price)", keep="1d"
    )
    sums.sink("out.sums", **sink)
    return net


def trade(key, price, desk="x"):
    return {"key": key, "at": 5, "desk": desk, "price": price}


def played(**sink):
    """Play a tape whose windows close early; return the driver and the records of a topic."""
    driver = Driver(network(**sink))
    late = {"key": "z", "at": 120_000, "desk": "y", "price": 1}
    for after in (trade("a", 3), trade("b", 4, "y"), late):
        driver.send("trades", {"op": "insert", "after": after})
    driver.close_epoch()
    driver.send("trades", {"op": "replace", "before": trade("a", 3), "after": trade("a", 5, "y")})
    driver.send("trades", {"op": "delete", "before": trade("b", 4, "y")})
    driver.close_epoch()
    driver.end()
    return driver


def records(driver, topic):
    found = driver.cluster.reader({TopicPartition(topic, 0): 0}).poll()
    return [pair for some in found for pair in zip(some.keys, some.values, strict=True)]


def decoded(driver, value):
    """Read a record without our codec."""
    if value is None or value[:1] == b"{":
        return None if value is None else json.loads(value, parse_float=str)
    schema = driver.shared.registry.schema(int.from_bytes(value[1:5], "big"))
    return fastavro.schemaless_reader(
        io.BytesIO(value[framing.HEAD_BYTES :]), fastavro.parse_schema(schema), None
    )


def folded(driver, topic):
    """Return the last tuple by record key, as a consumer of upserts keeps it."""
    held = {}
    for key, value in records(driver, topic):
        held[key] = value
    return [decoded(driver, value) for value in held.values() if value is not None]


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize("topic", ["trades", "sums"])
def test_upserts_fold_by_key_to_the_arc(topic, form):
    with played(envelope="upsert", format=form) as driver:
        found, wanted = folded(driver, f"out.{topic}"), driver.table(topic)
    assert len(found) == len(wanted) > 0
    visible = [{n: str(v) for n, v in row.items() if n not in ("at", "window_start", "window_end")}
               for row in (*found, *wanted)]  # fmt: skip
    half = len(found)
    assert sorted(map(str, visible[:half])) == sorted(map(str, visible[half:]))


@pytest.mark.parametrize("form", ["avro", "json"])
def test_debezium_records_tell_both_sides_and_a_delete_has_its_tombstone(form):
    with played(envelope="debezium", format=form) as driver:
        told = [(key, decoded(driver, value)) for key, value in records(driver, "out.trades")]
    ops = [None if value is None else value["op"] for _, value in told]
    assert ops == ["c", "c", "c", "u", "d", None] or ops == ["c", "c", "c", "d", None, "u"]
    (change,) = [value for _, value in told if value is not None and value["op"] == "u"]
    assert (str(change["before"]["price"]), str(change["after"]["price"])) == ("3.00", "5.00")
    gone = ops.index(None)
    assert told[gone][0] == told[gone - 1][0]
    assert all("__" not in name for _, value in told if value for name in value)


def test_a_revision_of_the_hidden_part_alone_is_not_told():
    net = Network("quiet")
    trades = net.source("trades", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("top", by=[], window=tumbling("1m"), top="max(price)", keep="1d").sink(
        "out", format="json"
    )
    with Driver(net) as driver:
        for after in (trade("a", 9), trade("b", 4), {**trade("z", 1), "at": 120_000}):
            driver.send("trades", {"op": "insert", "after": after})
        driver.close_epoch()
        driver.send("trades", {"op": "delete", "before": trade("b", 4)})
        driver.close_epoch()
        assert len(records(driver, "out")) == 1


ORDERED = {
    "key": "string", "at": "timestamp-millis", "desk": "string?", "price": "decimal(9,2)?",
    "size": "long?", "due": "date?", "born": "timestamp-micros", "id": "uuid?", "rate": "double",
}  # fmt: skip
"""Neither by name nor by type in any order, and values of every kind, some of them missing."""


def ordered(**sink):
    net = Network("ordered")
    trades = net.source("trades", fields=ORDERED, identity=["key"], event_time="at", keep="1d")
    mapped = trades.map("mapped", worth="price * size", desk="upper(desk)", a="size + 1")
    mapped.sink("out.mapped", **sink)
    results = {
        "z": "max(price)", "mean": "avg(size)", "b": "first(due)", "born": "last(born)",
        "a": "sum(worth) / count(*)", "distinct": "count(distinct id)",
    }  # fmt: skip
    made = mapped.aggregate("made", by=["desk"], window=tumbling("1m"), fields=results, keep="1d")
    made.sink("out.made", **sink)
    return net


WANTED = {
    "mapped": [*ORDERED, "worth", "a"],
    "made": ["desk", "window_start", "window_end", "z", "mean", "b", "born", "a", "distinct"],
}


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize("envelope", ["native", "debezium", "upsert"])
@pytest.mark.parametrize("arc", ["mapped", "made"])
def test_fields_have_the_order_in_which_they_are_declared_and_each_its_own_value(
    arc, envelope, form
):
    """A value under its neighbour's name would go unseen where types agree."""
    first = {
        "key": "a", "at": 5, "desk": "x", "price": 3, "size": 7, "due": "2026-01-02",
        "born": 1_700_000_000_000_001, "id": "0b7f8d1e-6a0c-4a52-9d6e-1f2a3b4c5d6e", "rate": 0.5,
    }  # fmt: skip
    missing = first | dict.fromkeys(["desk", "price", "size", "due", "id"]) | {"key": "b"}
    with Driver(ordered(envelope=envelope, format=form)) as driver:
        for after in (first, missing):
            driver.send("trades", {"op": "insert", "after": after})
        driver.close_epoch()
        driver.end()
        found = [decoded(driver, value) for _, value in records(driver, f"out.{arc}")]
        wanted = [revision["after"] for revision in driver.revisions(arc)]
    sides = found if envelope == "upsert" else [record["after"] for record in found]
    assert len(sides) == len(wanted) == 2
    for side in sides:
        assert list(side) == WANTED[arc]
    assert sorted(map(plain, sides), key=str) == sorted(map(plain, wanted), key=str)
    if arc == "made":
        assert {side["desk"] for side in sides} == {"X", None}


def plain(row):
    """Return a row's values as texts, times as the numbers that they are."""
    found = {}
    for name, value in row.items():
        if isinstance(value, datetime):
            unit = timedelta(microseconds=1 if name == "born" else 1_000)
            value = (value - datetime(1970, 1, 1, tzinfo=UTC)) // unit
        found[name] = str(value)
    return found


@pytest.mark.parametrize(
    "topic",
    [
        "net.made", "net.made.v2", "net.made.exchange", "net.trades", "net.progress", "net.plan",
        "net.dead-letters", "net.trades.requests", "net.made.replay", "_errata_schemas",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["source", "sink"])
def test_a_source_or_sink_on_one_of_the_networks_own_topics_is_refused(end, topic):
    def declared(source, sink):
        net = Network("net")
        trades = net.source(
            "trades", topic=source, identity=["key"], event_time="at", keep="1d",
            fields={"key": "string", "at": "timestamp-millis", "desk": "string", "price": "long"},
        )  # fmt: skip
        made = trades.aggregate(
            "made", by=["desk"], window=tumbling("1m"), worth="max(price)", scope="made",
            partitions=3, mode="upstream", keep="1d",
        )  # fmt: skip
        trades.where("some", "price > 0").aggregate(
            "other", by=["price"], window=tumbling("1m"), n="count(*)"
        )
        made.sink(sink)
        return net

    compile_network(declared("net.made.in", "net.made.out"))
    topics = {"source": "net.made.in", "sink": "net.made.out", end: topic}
    with pytest.raises(NetworkError, match="needs a topic that is not the network's own"):
        compile_network(declared(**topics))
