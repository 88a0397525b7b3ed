"""`errata spark --alone`: a whole network in one process and Spark's, with what Spark can't run."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec
from tests.conftest import QUICK_SPARK
from tests.errata import running
from tests.errata.running import Running

NETWORK = """
from errata import Network, hopping

net = Network("NAME", place="spark")
prices = net.source(
    "prices", topic="NAME-prices", format="json", keep="1d", identity=["key"], event_time="at",
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
    partitions=PARTITIONS,
)
dear = prices.where("dear", "price >= 0", KEEP)
up = dear.aggregate(
    "up", by=["symbol"], window=hopping("30m", every="20m"), keep="1d", horizon="1s",
    emit="on_update",
    total="sum(price)", top="max(price)",
)
up.sink("NAME-sink", envelope="upsert", format="json")
"""


def declare(network: Running, *, keep: str) -> None:
    network.declare(2)
    file = network.folder / "moved.py"
    file.write_text(file.read_text().replace("KEEP", f"keep={keep}"))


def start(network: Running) -> subprocess.Popen[bytes]:
    return network.start("spark", "moved.py", "--alone", "--master", "local[2]")


def await_right(network: Running) -> None:
    network.wait_for(lambda: network.found("up") == network.wanted(), "be right")


@pytest.fixture
def network(
    tmp_path: Path,
    environ: dict[str, str],
    broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Running]:
    monkeypatch.setattr(running, "NETWORK", NETWORK)
    reach = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    made = Running(tmp_path, environ | QUICK_SPARK | reach, broker)
    declare(made, keep="None")
    create_topics(broker.settings, [TopicSpec(f"{made.name}-prices", 2)])
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@pytest.mark.kafka
@pytest.mark.spark
def test_a_network_on_spark_needs_nothing_beside_it(network: Running) -> None:
    network.send(200)
    process = start(network)
    await_right(network)
    for _ in range(2):  # windows of the first part have long been forgotten by Spark
        network.base_ms += 700 * running.MINUTE
        network.send(60)
        await_right(network)
    network.wait_for(network.at_work, "be at work")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, network.log.read_text()
    assert "Traceback" not in network.log.read_text()


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_a_connection_point_divides_a_running_job_in_two(network: Running) -> None:
    network.send(200)
    process = start(network)
    await_right(network)
    declare(network, keep='"1d"')
    added = network.errata("connection-point", "add", "moved.py", "dear", "--master", "local[2]")
    assert added.returncode == 0, added.stderr
    assert process.wait(60) != 0  # its version has ended
    network.send(60)
    start(network)
    await_right(network)
    network.base_ms += 700 * running.MINUTE
    network.send(60)
    await_right(network)
