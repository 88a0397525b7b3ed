"""The commands that look at a running network, and those that tell it something, on a broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.errata.cli.test_run import MINUTE, Up, wait_for
from tests.errata.conftest import Errata
from tests.errata.network_file import write_network

pytestmark = pytest.mark.kafka

TOPIC = "watched-prices"
FIGURE = ((105, 30), (115, 25), (120, 25), (135, 37), (300, 1))


def insert(key: str, at: int, amount: int) -> bytes:
    after = {"key": key, "at": at * MINUTE, "symbol": "IBM", "price": amount}
    return json.dumps({"op": "insert", "after": after}).encode()


@pytest.fixture
def told(
    errata: Errata, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict]]:
    """Run a command that succeeds, and return what it prints as JSON lines."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)

    def run(*arguments: str) -> list[dict]:
        done = errata(*arguments)
        assert done.status == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    return run


@pytest.fixture
def up(
    tmp_path: Path, environ: dict[str, str], broker: EmbeddedBroker, cluster: KafkaCluster
) -> Iterator[Up]:
    """The network with two partitions, of which the first has figure 1, and a bad record."""
    write_network(tmp_path, name="watched", scope="counting")
    create_topics(broker.settings, [TopicSpec(TOPIC, 2)])
    for at, amount in FIGURE:
        cluster.send(TOPIC, partition=0, key=None, value=insert(f"{at}", at, amount))
    cluster.send(TOPIC, partition=0, key=b"k", value=b"\xff")
    servers = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    running = Up(tmp_path, environ | servers, "--apart")  # so that requests go over topics
    yield running
    running.process.kill()
    running.process.wait()


def test_a_network_is_watched_revised_and_told_to_take_again_what_it_refused(
    up: Up, told: Callable[..., list[dict]], errata: Errata, cluster: KafkaCluster
) -> None:
    wait_for(lambda: "started sweepers" in up.log.read_text(), up)

    def tasks() -> dict[str, dict]:
        return {task["task"]: task for task in told("status", "tape.py")[0]["tasks"]}

    wait_for(lambda: tasks()["ingest.prices.0"]["counts"].get("dead_letters") == 1, up)
    wait_for(lambda: all(task["lag_ms"] is not None for task in tasks().values()), up)
    (now,) = told("status", "tape.py")
    (hold,) = now["holds"]  # the second partition has never had a record
    assert (hold["task"], hold["watermark_ms"]) == ("ingest.prices.1", None)
    assert "set idle_after=, or run `errata end NET prices`" in hold["told"]
    assert tasks()["ingest.prices.0"]["waiting"] == 0
    assert told("tail", "tape.py", "sums", "--from-beginning", "--no-follow") == []

    # what closes the windows
    told("end", "tape.py", "prices", "--json")
    first = told("tail", "tape.py", "sums", "--from-beginning", "--limit", "5")
    assert {r["after"]["window_start"]: r["after"]["total"] for r in first}[100 * MINUTE] == 80
    wait_for(lambda: all(task["held"] is None for task in tasks().values()), up)
    assert told("status", "tape.py")[0]["holds"] == []
    assert tasks()["ingest.prices.1"]["ended"]

    # a dry run says what comes, and it comes, from the partition that held the tuple
    change = ("revise", "tape.py", "prices", "replace", "--key", "120", "--set", "price=22")
    dry = told(*change, "--dry-run")
    assert dry[0]["offset"] is None
    sent = told(*change)[0]
    assert (sent["topic"], sent["partition"], sent["offset"]) == (TOPIC, 0, len(FIGURE) + 1)
    every = told("tail", "tape.py", "sums", "--from-beginning", "--limit", str(len(first) + 2))
    real = [{**r, "arc": "sums"} for r in every[len(first) :]]
    for revision in real:
        del revision["epoch"]
    assert [r["after"]["total"] for r in real] == [77, 59]
    assert real == [r for r in dry if r.get("arc") == "sums"]

    # every topic of the network can be printed, every record of an arc is believed
    topics = ("progress", "plan", "schemas", "dead-letters", "prices.requests", "prices.replay")
    for topic in topics:
        assert told("print", "tape.py", topic), topic
    printed = told("print", "tape.py", "sums")
    assert {r["believed"] for r in printed} == {True}
    assert len(printed) >= len(every)

    # what was refused is shown, and sent again to where it came from
    (letter,) = told("dead-letters", "tape.py")
    place = f"{letter['partition']}:{letter['offset']}"
    assert told("dead-letters", "show", "tape.py", place)[0]["value_base64"] == "/w=="
    (again,) = told("dead-letters", "resend", "tape.py", "--at", place, "--json")
    assert again["sent_as"] == cluster.end(TopicPartition(TOPIC, 0)) - 1
    wait_for(lambda: len(told("dead-letters", "tape.py")) == 2, up)

    refused = errata("revise", "tape.py", "prices", "delete", "--key", "z")
    assert (refused.status, refused.out) == (1, "")
    assert "holds no tuple key=z" in refused.err


@pytest.mark.parametrize(
    "arguments", [["status"], ["tail", "sums"], ["print", "sums"], ["dead-letters"]]
)
def test_a_network_that_was_never_started_is_told_so(
    tmp_path: Path,
    broker: EmbeddedBroker,
    errata: Errata,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    write_network(tmp_path, name="unwatched")
    create_topics(broker.settings, [TopicSpec("unwatched-prices", 1)])
    done = errata(arguments[0], "tape.py", *arguments[1:])
    assert (done.status, done.out) == (1, "")
    assert (
        "network 'unwatched' is not deployed on this cluster; run `errata up tape.py`" in done.err
    )
