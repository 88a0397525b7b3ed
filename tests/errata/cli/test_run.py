"""A whole network on a broker, run by the command line alone."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from errata.run.supervisor import usable_processors
from errata.schemas import framing
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.errata.conftest import errata_in
from tests.errata.network_file import write_network

pytestmark = pytest.mark.kafka

MINUTE = 60_000
LIMIT_S = 60.0


BRITTLE = """
from errata import Network, python

net = Network("brittle")
prices = net.source(
    "prices", topic="brittle-prices", format="json", identity=["key"], event_time="at",
    fields={"key": "string", "at": "timestamp-millis", "price": "long"},
)
prices.map("scaled", share=python(lambda price: 1 // price, "long", "price"))
"""


@pytest.fixture
def on_broker(environ: dict[str, str], broker: EmbeddedBroker) -> dict[str, str]:
    return environ | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}


class Up:
    """`errata up` in a process of its own."""

    def __init__(self, folder: Path, environ: dict[str, str], *options: str) -> None:
        self.log = folder / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "errata", "up", "tape.py", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environ,
            )

    def children(self) -> list[int]:
        """The processes that have this one as their parent."""
        stats = [p.read_text() for p in Path("/proc").glob("[0-9]*/stat") if p.exists()]
        split = [(stat.split()[0], stat.rpartition(")")[2].split()) for stat in stats]
        return [
            int(pid)
            for pid, (state, parent, *_) in split
            if int(parent) == self.process.pid and state != "Z"
        ]


@pytest.fixture
def up(tmp_path: Path, on_broker: dict[str, str], broker: EmbeddedBroker) -> Iterator[Up]:
    write_network(tmp_path, name="upped", scope="counting")
    create_topics(broker.settings, [TopicSpec("upped-prices", 2)])
    running = Up(tmp_path, on_broker)
    yield running
    running.process.kill()
    running.process.wait()


def send(broker: EmbeddedBroker, *lines: bytes, topic: str = "upped-prices") -> None:
    producer = Producer({**broker.settings, "enable.idempotence": True})
    for line in lines:
        producer.produce(topic, line, partition=0)
    assert producer.flush(30) == 0


def price(key: str, at: int, amount: int) -> bytes:
    after = {"key": key, "at": at * MINUTE, "symbol": "IBM", "price": amount}
    return json.dumps({"op": "insert", "after": after}).encode()


def wait_for(condition, up: Up) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert up.process.poll() is None, up.log.read_text()
        assert time.monotonic() < deadline, up.log.read_text()
        time.sleep(0.1)


def results(broker: EmbeddedBroker) -> int:
    """How many revisions the partitions of the totals hold, control records and all."""
    cluster = KafkaCluster(broker.settings)
    try:
        places = [TopicPartition("upped.sums", p) for p in range(2)]
        reader = cluster.reader(dict.fromkeys(places, 0))
        found = 0
        while any(reader.position(place) < cluster.end(place) for place in places):
            for records in reader.poll(timeout_s=0.1):
                values = [v for v in records.values if v is not None]
                found += int((framing.unframe(values).schema_ids != framing.UNFRAMED).sum())
        reader.close()
        return found
    finally:
        cluster.close()


def test_a_network_is_upped_fed_ended_asked_for_its_dead_letters_and_stopped(
    tmp_path: Path, on_broker: dict[str, str], broker: EmbeddedBroker, up: Up
) -> None:
    wait_for(lambda: re.search(r"ready: \d+ tasks run", up.log.read_text()) is not None, up)
    second = errata_in(tmp_path, on_broker, "up", "tape.py")
    assert second.status == 1
    assert f"is run by another `errata up` already, process {up.process.pid}" in second.err
    send(broker, price("a", 100, 30), price("b", 110, 25), b"no \xff revision", price("c", 120, 25))
    ended = errata_in(tmp_path, on_broker, "end", "tape.py", "prices", "--json")
    assert (ended.status, ended.err) == (0, "")
    assert json.loads(ended.out) == {"source": "prices", "ends": {"0": 4, "1": 0}}
    wait_for(lambda: results(broker) == 3, up)

    letters = errata_in(tmp_path, on_broker, "dead-letters", "tape.py", "--json")
    (letter,) = map(json.loads, letters.out.splitlines())
    assert letter["reason"] == "undecodable"
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("upped-prices", 0, 2)
    assert letter["value_base64"] == "bm8g/yByZXZpc2lvbg=="

    children = up.children()
    assert len(children) == min(2, usable_processors())
    os.kill(children[0], signal.SIGKILL)
    wait_for(lambda: "restarted " in up.log.read_text(), up)

    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(10) == 0
    assert up.children() == []
    assert "Traceback" not in up.log.read_text()
    assert up.log.read_text().endswith("errata: all processes have ended\n")


def test_a_function_that_raises_ends_all_or_leaves_a_dead_letter_as_the_setting_says(
    tmp_path: Path, on_broker: dict[str, str], broker: EmbeddedBroker
) -> None:
    (tmp_path / "tape.py").write_text(BRITTLE)
    create_topics(broker.settings, [TopicSpec("brittle-prices", 1)])
    send(broker, price("a", 100, 0), price("b", 110, 1), topic="brittle-prices")
    strict = on_broker | {"ERRATA_BOXES__ON_ERROR": "stop"}
    ended = errata_in(tmp_path, strict, "up", "tape.py")
    assert ended.status != 0
    assert re.search(r"box 'scaled', epoch \d+: .* ZeroDivisionError: .*'key': 'a'", ended.err)
    assert errata_in(tmp_path, on_broker, "dead-letters", "tape.py", "--json").out == ""

    up = Up(tmp_path, on_broker)
    found: list[str] = []

    def is_told() -> bool:
        letters = errata_in(tmp_path, on_broker, "dead-letters", "tape.py", "--json")
        found[:] = letters.out.splitlines()
        return len(found) > 0

    try:
        wait_for(is_told, up)
    finally:
        up.process.kill()
        up.process.wait()
    (letter,) = map(json.loads, found)
    assert (letter["reason"], letter["offset"]) == ("function raised", -1)
    assert "'key': 'a'" in letter["detail"]


def test_a_source_that_is_not_there_is_told_without_starting_anything(
    tmp_path: Path, on_broker: dict[str, str]
) -> None:
    write_network(tmp_path, name="nosource")
    done = errata_in(tmp_path, on_broker, "up", "tape.py")
    assert (done.status, done.out) == (1, "")
    assert "topic 'nosource-prices'" in done.err
    assert "started" not in done.err


@pytest.mark.parametrize("command", [["dead-letters"], ["end"]])
def test_a_network_that_was_never_started_is_told_so(
    tmp_path: Path, on_broker: dict[str, str], broker: EmbeddedBroker, command: list[str]
) -> None:
    write_network(tmp_path, name="never")
    create_topics(broker.settings, [TopicSpec("never-prices", 1)])
    more = ["prices"] if command == ["end"] else []
    done = errata_in(tmp_path, on_broker, *command, "tape.py", *more)
    assert done.status == 1
    assert "network 'never' is not deployed on this cluster; run `errata up tape.py`" in done.err


def test_no_broker_is_waited_for_and_given_up_with_a_clear_line_and_no_secret(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    write_network(tmp_path)
    nowhere = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "ERRATA_KAFKA__SASL_PASSWORD": "hunter2"}
    nowhere["ERRATA_BROKERS__WAIT"] = "3s"
    done = errata_in(tmp_path, environ | nowhere, "run", "tape.py", "--scope", "prices")
    assert (done.status, done.out) == (1, "")
    waits, *_, gives_up = done.err.splitlines()  # a slow machine may say in between what it misses
    assert waits.endswith("no broker answers at 127.0.0.1:1 yet; waiting for at most 3 s")
    assert "no broker answers at 127.0.0.1:1 within 3 s" in gives_up
    assert "hunter2" not in done.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--apart", "--processes", "2"], "needs one of --apart, --processes; found both"),
        (["--processes", "0"], "Input should be greater than or equal to 1"),
    ],
)
def test_options_that_no_network_can_have_are_refused(
    tmp_path: Path, environ: dict[str, str], options: list[str], told: str
) -> None:
    write_network(tmp_path)
    done = errata_in(tmp_path, environ, "up", "tape.py", *options)
    assert done.status == 2
    assert told in " ".join(done.err.split())
