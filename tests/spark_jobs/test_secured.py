"""Executors reach a cluster that wants TLS and a password, and nothing of Spark's shows it."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Producer

from errata.deploy.rights import roles
from errata.run.worker import Worker
from errata.settings.loading import load
from errata.settings.place import Place
from errata.spark import register
from errata.topics.admin import create_topics
from errata.topics.settings import TopicSpec
from tests.errata.network_file import write_network
from tests.kafka.sealed import NET, NETWORK, World
from tests.kafka.secured import Secured, bindings, secured

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore"),  # of sockets that py4j leaves open
]

NAME, LIMIT_S = "private", 60.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there, which makes the certificates")
    with secured(tmp_path_factory.mktemp("certificates")) as running:
        yield running


def test_executors_read_an_arc_as_a_reader_and_no_plan_shows_the_password(
    kafka: Secured, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)  # py4j tells all that passes through it below
    write_network(tmp_path, name=NAME)
    create_topics(kafka.broker.settings, [TopicSpec(f"{NAME}-prices", 1)])
    network = load(str(tmp_path / "tape.py"))
    worker = Worker(network, Place(kafka.broker.settings, tmp_path))
    worker.add_scope("ingest.prices")
    producer, deadline = Producer(kafka.broker.settings), monotonic() + LIMIT_S
    for key in ("a", "b"):
        price = {"key": key, "at": 60_000, "symbol": "IBM", "price": 2}
        producer.produce(f"{NAME}-prices", json.dumps({"op": "insert", "after": price}).encode())
    producer.flush(LIMIT_S)
    view, task = worker.shared.view, "ingest.prices.0"
    worker.run(lambda: view.of(task).counts.get("read") == 2 or monotonic() > deadline)
    user = f"{NAME}.reader"
    password = kafka.user(user)
    kafka.grant(bindings(f"User:{user}", roles(worker.plan)["reader"]))
    reader = register(spark).read.format("errata").option("network", NAME).option("arc", "prices")
    for key, value in kafka.settings(user).items():
        reader = reader.option(f"kafka.{key}", value)
    table = reader.load()
    assert sorted(row.key for row in table.collect()) == ["a", "b"]
    for shown in ("simple", "extended", "codegen", "cost", "formatted"):
        told = table._jdf.queryExecution().explainString(
            spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString(shown)
        )
        assert password not in told
    assert password not in caplog.text


ON_SPARK = (
    NETWORK
    + """
prices.aggregate(
    "bars", by=["symbol"], window=hopping("30m", every="30m"), total="sum(price)", keep="1d",
    place="spark", horizon="30m",
)
"""
)


def price(key: str, minute: int, dollars: int) -> dict[str, object]:
    return {"key": key, "at": minute * 60_000, "symbol": "IBM", "price": dollars}


def totals(world: World) -> list[int]:
    """Return the job's results by window, as a reader sees them."""
    done = world.errata("reader", "tail", "bars", "--from-beginning", "--no-follow", "--json")
    assert done.status == 0, done.err
    results = {}
    for line in map(json.loads, done.out.splitlines()):
        results[line["after"]["window_start"]] = line["after"]["total"]
    return [results[start] for start in sorted(results)]


def run_job(world: World, count: int) -> None:
    """Run the job as its role until it has given so many results."""
    deadline = monotonic() + LIMIT_S
    while True:
        done = world.errata("spark.bars", "spark", "--once", "--conf", "spark.ui.enabled=false")
        assert done.status == 0, done.err
        if len(totals(world)) >= count or monotonic() > deadline:
            return


@pytest.mark.slow
def test_a_job_works_with_its_roles_rights_over_two_lives_and_asks_a_sweeper(
    kafka: Secured, tmp_path: Path
) -> None:
    """Its second life goes on, and asks for what is older than its horizon."""
    world = World(kafka, tmp_path, ON_SPARK)
    with world.running("ingest.prices"), world.running("sweep.prices"):
        world.feed(*(price(f"a{n}", n * 10, n * 10) for n in range(20)))
        run_job(world, 6)
        assert totals(world) == [30, 120, 210, 300, 390, 480]
        world.feed(price("a0", 0, 1_000))
        world.feed(price("a20", 210, 0), price("a21", 210, 0))
        run_job(world, 7)
        assert totals(world) == [1_030, 120, 210, 300, 390, 480, 370]
    logs = [log.read_text() for log in tmp_path.glob("state.spark.bars/**/spark.*.log")]
    assert logs
    for user, password in kafka.passwords.items():
        assert password not in "\n".join([*world.said, *logs]), user
    assert f"{NET}.spark.bars" in kafka.passwords
