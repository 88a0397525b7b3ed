"""Topics and sinks, read by others with the registry alone: no code of Errata's."""

import json
import shutil
import subprocess
from decimal import Decimal
from time import monotonic

import pytest

from errata import Network, tumbling
from errata.deploy.deployment import prepare
from errata.processors.plan.deployed import declare_end
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import FOREVER
from errata.run.worker import Worker
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.kafka.plain_consumer import consumed
from tests.registry.avro_producer import Orders, order

pytestmark = [pytest.mark.kafka, pytest.mark.registry]

LIMIT_S, NAME = 90.0, "read"
TOTALS = [("x", Decimal("7.00")), ("y", Decimal("5.00"))]


def network() -> Network:
    net = Network(NAME)
    orders = net.source(
        "orders", topic="read.in", envelope="upsert", format="avro", event_time="at", keep="1d"
    )
    sums = orders.aggregate(
        "sums", by=["desk"], window=tumbling("1m"), total="sum(price)", keep="1d"
    )
    for envelope in ("native", "debezium", "upsert"):
        sums.sink(f"read.{envelope}", envelope=envelope, format="avro")
    sums.sink("read.json", envelope="upsert", format="json")
    return net


@pytest.fixture(scope="module")
def ended(apicurio, broker, tmp_path_factory) -> None:
    """A network that has run to the end of its source."""
    create_topics(broker.settings, [TopicSpec("read.in", 1)])
    orders = Orders(broker.settings, "read.in", apicurio.register)
    for identity, desk, price in (("a", "x", 3), ("b", "x", 4), ("c", "x", 9), ("d", "y", 5)):
        orders.send(order(), identity, {"at": 5, "desk": desk, "price": Decimal(price)})
    orders.send(order(), "c", None)
    orders.producer.produce("read.in", b"no Avro", partition=0)
    assert orders.producer.flush(30) == 0
    cluster = KafkaCluster(broker.settings)
    state = tmp_path_factory.mktemp("state")
    place = Place(broker.settings, state, registry={"url": apicurio.url})
    worker = Worker(network(), place)
    for scope in ("ingest.orders", *worker.plan.topology.scopes):
        worker.add_scope(scope, sweep_beside=True)
    declare_end(cluster, prepare(network(), place, cluster), "orders")
    view, deadline = View(cluster, plan=worker.plan), monotonic() + LIMIT_S
    tasks = [
        task for scope in worker.plan.topology.scopes for task in worker.plan.placement.tasks(scope)
    ]

    def done() -> bool:
        view.poll()
        assert monotonic() < deadline
        return all(view.of(task).watermark == FOREVER for task in tasks)

    worker.run(done)
    cluster.close()


@pytest.fixture
def told(ended, apicurio, broker):
    """What a plain consumer with Confluent's deserializer is told by a topic."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": apicurio.url, "timeout": 30})  # else a lost answer hangs
    read = AvroDeserializer(client)

    def decoded(side: bytes | None, topic: str, field: str):
        return None if side is None else read(side, SerializationContext(topic, field))

    def records(topic: str, *, keys: bool = True) -> list[tuple]:
        return [
            (
                decoded(key, topic, MessageField.KEY) if keys else key,
                decoded(value, topic, MessageField.VALUE),
            )
            for key, value in consumed(broker, topic)
        ]

    with client:
        yield records


def totals(rows) -> list[tuple]:
    return sorted((row["desk"], row["total"]) for row in rows)


def test_a_plain_consumer_reads_all_sinks(told):
    assert totals(row for _, row in told("read.upsert")) == TOTALS
    changes = told("read.debezium")
    assert [(change["op"], change["before"]) for _, change in changes] == [("c", None)] * 2
    assert totals(change["after"] for _, change in changes) == TOTALS
    assert {change["source"]["table"] for _, change in changes} == {"sums"}
    assert totals(row["after"] for _, row in told("read.native")) == TOTALS
    for topic in ("read.upsert", "read.debezium", "read.native"):
        for key, row in told(topic):
            tuple_ = row.get("after", row)
            assert key == {name: tuple_[name] for name in ("desk", "window_start")}


def test_a_plain_consumer_reads_all_topics_of_arcs_and_reports(told):
    folded: dict[str, dict] = {}
    for key, value in told("read.orders"):
        assert key is not None
        if value is not None and value["op"] != "delete":
            folded[key["id"]] = value["after"]
        else:
            folded.pop(key["id"], None)
    assert {name: row["price"] for name, row in folded.items()} == {
        "a": Decimal("3.00"), "b": Decimal("4.00"), "d": Decimal("5.00"),
    }  # fmt: skip
    assert totals(value["after"] for _, value in told("read.sums") if value) == TOTALS
    reports = [report for _, report in told("read.progress", keys=False)]
    assert {report["task"] for report in reports} >= {"ingest.orders.0"}
    ((_, letter),) = told("read.dead-letters")
    assert (letter["reason"], letter["value"]) == ("undecodable", b"no Avro")


def kcat(*arguments: str) -> str:
    """What kcat prints."""
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    if arguments[0] == "-s" and "Avro" not in run_kcat("-V"):
        pytest.skip("this kcat is built without Avro")
    return run_kcat(*arguments)


def run_kcat(*arguments: str) -> str:
    done = subprocess.run(
        ["kcat", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_reads_avro(ended, apicurio, broker):
    lines = kcat(
        "-s", "avro", "-r", apicurio.url, "-b", broker.bootstrap_servers, "-C", "-t", "read.upsert",
        "-e", "-q", "-X", "isolation.level=read_committed",
    ).splitlines()  # fmt: skip
    assert sorted(json.loads(line)["desk"] for line in lines) == ["x", "y"]


def test_kcat_reads_json(ended, broker):
    lines = kcat(
        "-b", broker.bootstrap_servers, "-C", "-t", "read.json", "-e", "-q",
        "-X", "isolation.level=read_committed",
    ).splitlines()  # fmt: skip
    rows = [json.loads(line, parse_float=Decimal) for line in lines]
    assert totals(rows) == TOTALS


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open
@pytest.mark.parametrize(
    ("topic", "column"), [("upsert", "t"), ("debezium", "t.after"), ("sums", "t.after")]
)
def test_spark_reads_avro_by_the_schemas_of_the_registry(
    ended, apicurio, broker, spark_avro, topic, column
):
    from pyspark.sql.avro.functions import from_avro

    schema = apicurio.ask("GET", f"subjects/read.{topic}-value/versions/latest")["schema"]
    frame = (
        spark_avro.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", f"read.{topic}")
        .load()
    )
    body = frame.where("value is not null").selectExpr("substring(value, 6) as body")
    rows = body.select(from_avro("body", schema).alias("t"))
    found = rows.selectExpr(f"{column}.desk", f"{column}.total").collect()
    assert totals(row.asDict() for row in found) == TOTALS
