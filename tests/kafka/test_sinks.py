"""Sinks over a real broker, read by others: a plain consumer, and Spark."""

import json
from decimal import Decimal
from time import monotonic

import pytest

from errata import Network, tumbling
from errata.client.json_lines import json_line
from errata.deploy.deployment import prepare
from errata.processors.plan.deployed import declare_end
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import FOREVER
from errata.run.worker import Worker
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec
from tests.kafka.plain_consumer import consumed

LIMIT_S = 60.0
FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "desk": "string",
    "price": "decimal(9,2)",
}
TOTALS = [("x", Decimal("7.00")), ("y", Decimal("5.00"))]


def network(name):
    net = Network(name)
    trades = net.source(
        "trades",
        topic=f"{name}.in",
        envelope="upsert",
        format="json",
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        keep="1d",
    )
    sums = trades.aggregate(
        "sums", by=["desk"], window=tumbling("1m"), total="sum(price)", keep="1d"
    )
    for envelope in ("native", "debezium", "upsert"):
        for form in ("avro", "json"):
            sums.sink(f"{name}.{envelope}.{form}", envelope=envelope, format=form)
    return net


@pytest.fixture(scope="module")
def sunk(broker, tmp_path_factory):
    """A network that has run to the end of its source; returns its name."""
    name = "sunk"
    create_topics(broker.settings, [TopicSpec(f"{name}.in", 1)])
    cluster = KafkaCluster(broker.settings)
    place = Place(broker.settings, tmp_path_factory.mktemp("state"))
    worker = Worker(network(name), place)
    for scope in ("ingest.trades", *worker.plan.topology.scopes):
        worker.add_scope(scope, sweep_beside=True)

    def send(key, price, desk="x"):
        value = None if price is None else {"key": key, "at": 5, "desk": desk, "price": price}
        cluster.send(f"{name}.in", partition=0, key=json.dumps({"key": key}).encode(),
                     value=None if value is None else json_line(value))  # fmt: skip

    for key, price in (("a", 3), ("b", 4), ("c", 9), ("d", 5)):
        send(key, price, "y" if key == "d" else "x")
    send("c", None)
    cluster.flush()  # else the source may end before what was sent
    declare_end(cluster, prepare(network(name), place, cluster), "trades")
    view, deadline = View(cluster, plan=worker.plan), monotonic() + LIMIT_S

    def done():
        view.poll()
        assert monotonic() < deadline
        return view.of("trades.0").watermark == FOREVER

    worker.run(done)
    cluster.close()
    return name


@pytest.mark.kafka
def test_a_plain_consumer_reads_json_sinks(broker, sunk):
    upserts = {
        key: json.loads(value, parse_float=Decimal)
        for key, value in consumed(broker, f"{sunk}.upsert.json")
    }
    assert sorted((row["desk"], row["total"]) for row in upserts.values()) == TOTALS
    changes = [json.loads(value) for _, value in consumed(broker, f"{sunk}.debezium.json")]
    assert [change["op"] for change in changes] == ["c", "c"]
    native = [json.loads(value) for _, value in consumed(broker, f"{sunk}.native.json")]
    assert [line["op"] for line in native] == ["insert", "insert"]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open
@pytest.mark.parametrize(
    ("envelope", "column"), [("upsert", "t"), ("debezium", "t.after"), ("native", "t.after")]
)
def test_spark_reads_avro_sinks_with_its_own_decoder(broker, sunk, spark_avro, envelope, column):
    from pyspark.sql.avro.functions import from_avro

    topic = f"{sunk}.{envelope}.avro"
    cluster = KafkaCluster(broker.settings)
    registry = SchemaRegistry(cluster)
    schema_id = int.from_bytes(consumed(broker, topic)[0][1][1:5], "big")
    schema = json.dumps(registry.schema(schema_id))
    cluster.close()
    frame = (
        spark_avro.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )
    body = frame.selectExpr("substring(value, 6) as body")
    told = body.select(from_avro("body", schema).alias("t")).selectExpr(
        f"{column}.desk", f"{column}.total"
    )
    assert sorted((row.desk, row.total) for row in told.collect()) == TOTALS
