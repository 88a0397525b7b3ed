"""A source's producers upgrade their schema under a running network, for better and worse."""

import base64
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from errata.topics.admin import create_topics
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec, compacted
from tests.registry.avro_producer import FEE, Orders, order

pytestmark = pytest.mark.kafka

NETWORK = """
from errata import Network, tumbling

net = Network("NAME")
orders = net.source(
    "orders", topic="NAME.in", envelope="upsert", format="avro", event_time="at", keep="1d",
    identity=["id"], fields=FIELDS,
)
real = orders.where("real", "price > 0", keep="1d")
options = dict(by=["desk"], window=tumbling("1m"), total="sum(price)", keep="1d", emit="on_update")
real.aggregate("up", mode="upstream", **options)
real.aggregate("down", mode="downstream", scope="down", **options)
real.sink("NAME.now", envelope="upsert", format="avro")
"""
FIELDS = {"id": "string", "at": "timestamp-millis", "desk": "string", "price": "decimal(9,2)"}


def network(name: str, **more: str) -> str:
    return NETWORK.replace("NAME", name).replace("FIELDS", repr(FIELDS | more))


@pytest.mark.parametrize(
    "keeper",
    ["topic", pytest.param("server", marks=[pytest.mark.registry, pytest.mark.slow])],
)
def test_a_new_optional_field_rolls_through_a_network_that_runs(
    keeper, on, broker, cluster, request
):
    name, url = f"rolled-{keeper}", None
    create_topics(broker.settings, [TopicSpec(SCHEMAS_TOPIC, 1, compacted())])
    create_topics(broker.settings, [TopicSpec(f"{name}.in", 2)])
    give: Callable[[str, Any], int] = SchemaRegistry(cluster).register
    if keeper == "server":
        apicurio = request.getfixturevalue("apicurio")
        url, give = apicurio.url, apicurio.register
    running = on(url)
    orders = Orders(broker.settings, f"{name}.in", give, partitions=2)
    old, new = order(), order(FEE)
    rows: dict[str, dict] = {}

    def send(number: int, price: int, schema: dict, **more: int) -> None:
        key, price_ = f"k{number}", Decimal(price)
        content = {"at": number * 1_000, "desk": "xyz"[number % 3], "price": price_}
        orders.send(schema, key, content | more)
        rows[key] = {"id": key} | content | ({"fee": more.get("fee")} if declared else {})

    def as_recomputed() -> bool:
        totals: dict[tuple, Decimal] = defaultdict(Decimal)
        for row in rows.values():
            totals[row["desk"], row["at"] // 60_000] += row["price"]
        there = {row["id"]: row for row in running.table("orders")}
        if there != rows or len(running.table("real")) != len(rows):
            return False
        return all(
            {(row["desk"], row["window_start"] // 60_000): row["total"]
             for row in running.table(arc)} == totals
            for arc in ("up", "down")
        )  # fmt: skip

    declared = False
    running.declare(network(name))
    assert running.lines("deploy", "net.py")[0]["version"] == 1
    up = running.start("up", "net.py")
    for number in range(60):
        send(number, 1 + number, old)
    running.wait_for(as_recomputed, "before")

    # The producers upgrade, one after the other: the network ignores the field.
    for number in range(40, 120):
        more = {"fee": number} if number % 2 else {}
        send(number, 2 + number, new if number % 2 else old, **more)
    running.wait_for(as_recomputed, "with producers ahead")
    assert running.lines("dead-letters", "net.py") == []

    # The network declares it, and is rolled while orders come in.
    running.declare(network(name, fee="long?"))
    refused = running.errata("run", "net.py", "--scope", "down")
    assert "`errata deploy` adds them" in refused.stderr
    told = {line["subject"]: line["kind"] for line in running.lines("schemas", "check", "net.py")}
    assert told[f"{name}.now-value"] == "compatible"
    assert told[f"{name}.orders.v2-value"] == "new"
    (moved,) = running.lines("deploy", "net.py")
    assert moved["version"] == 2
    assert moved["changes"] == [
        {"kind": "field", "name": "orders.fee", "before": None, "after": "long?", "copied": 120}
    ]
    declared = True
    rows = {key: row | {"fee": None} for key, row in rows.items()}
    for number in range(30, 160):
        more = {"fee": 1000 + number} if number % 2 else {}
        send(number, 3 + number, new if number % 2 else old, **more)
    running.wait_for(as_recomputed, "rolled")
    assert sum(row["fee"] is not None for row in running.table("real")) == 65
    assert up.poll() is None, running.log.read_text()
    assert "Traceback" not in running.log.read_text()


def test_a_field_that_is_gone_or_of_another_type_is_a_dead_letter_that_keeps_the_bytes(
    on, broker, cluster
):
    name = "narrowed"
    create_topics(broker.settings, [TopicSpec(SCHEMAS_TOPIC, 1, compacted())])
    create_topics(broker.settings, [TopicSpec(f"{name}.in", 1)])
    running = on(None)
    orders = Orders(broker.settings, f"{name}.in", SchemaRegistry(cluster).register)
    running.declare(network(name))
    assert running.errata("deploy", "net.py").returncode == 0
    running.start("up", "net.py")
    content = {"at": 1_000, "desk": "x", "price": Decimal(5)}
    orders.send(order(), "a", content)
    bad = [
        orders.send(order(without="price"), "b", {"at": 1_000, "desk": "x"}),
        orders.send(order(price="string"), "c", content | {"price": "five"}),
        orders.send(order(price="double"), "c", content | {"price": 5.0}),
        orders.send(order(desk=["null", "string"]), "d", content | {"desk": None}),
    ]
    orders.send(order(desk=["null", "string"]), "e", content)
    orders.send(order(FEE), "f", content | {"fee": 3})

    def letters() -> list[dict]:
        return running.lines("dead-letters", "net.py", "--json")

    running.wait_for(lambda: len(letters()) == len(bad), "dead letters")
    running.wait_for(lambda: len(running.table("orders")) == 3, "orders")
    assert [row["id"] for row in running.table("orders")] == ["a", "e", "f"]
    assert [row["total"] for row in running.table("up")] == [Decimal(15)]
    for letter, value in zip(letters(), bad, strict=True):
        kept = letter.get("value", "").encode() or base64.b64decode(letter["value_base64"])
        assert kept == value
        assert letter["offset"] in range(1, 5)
    told = [letter["detail"] for letter in letters()]
    assert all("price" in detail for detail in told[:3]), told
    assert "desk" in told[3], told
