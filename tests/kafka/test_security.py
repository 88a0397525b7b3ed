"""TLS, passwords and rights: roles that have what `errata acls` prints work, and fail closed else.

Each ACL of a role that runs, and those of readers and operators that matter, is taken away in turn.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from time import monotonic

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation

from errata.loading import load
from errata.place import Place
from errata.preparation import prepare
from errata.rights import SCOPE, SWEEPER
from errata.worker import Worker
from tests.errata.conftest import ROOT, Ended
from tests.kafka.secured import HOST, Secured, rules, secured, told
from topics.cluster import ClusterError
from topics.create import create_topics
from topics.kafka import KafkaCluster
from topics.presence import await_brokers
from topics.refused import RefusedError
from topics.settings import TopicSpec

pytestmark = pytest.mark.kafka

NET, FEED, OUT = "sealed", "sealed-feed", "sealed-out"
NETWORK = """
from errata import Network, hopping

net = Network("sealed")
prices = net.source(
    "prices", topic="sealed-feed", format="json", keep="1d", identity=["key"], event_time="at",
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
    partition_by=["key"], envelope="upsert",
)
sums = prices.aggregate(
    "sums", by=["symbol"], window=hopping("30m", every="20m"), total="sum(price)", keep="1d",
)
sums.sink("sealed-out", format="json")
"""
RUNNING = ("ingest.prices", "scope.prices", "scope.sums", "sweep.prices", "sweep.sums")
CLOSED_S = 10.0
"""Within this time a process without a right has ended."""
LIMIT_S = 60.0
MINUTE = 60_000


class World:
    """The network on a secured broker, and what its processes have said."""

    def __init__(self, kafka: Secured, folder: Path) -> None:
        self.kafka, self.folder, self.said = kafka, folder, list[str]()
        self.net = folder / "net.py"
        self.net.write_text(NETWORK)
        foreign = ("ERRATA_", "KAFKA_", "SCHEMA_")
        self.plain = {n: v for n, v in os.environ.items() if not n.startswith(foreign)}
        self.plain |= {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        create_topics(kafka.broker.settings, [TopicSpec(FEED, 2)])
        lines = told(self.errata(None, "acls", "--json").out)
        self.rules = {role: rules(line) for role, line in lines.items()}
        for role, line in lines.items():
            kafka.user(line["principal"].removeprefix("User:"))
            kafka.grant(self.rules[role])
        done = self.errata("deployer", "deploy")
        assert done.status == 0, done.err

    def environ(self, role: str | None) -> dict[str, str]:
        own = {} if role is None else self.kafka.environ(f"{NET}.{role}")
        return self.plain | {"ERRATA_STATE": str(self.folder / f"state.{role}")} | own

    def errata(self, role: str | None, command: str, *more: str, **variables: str) -> Ended:
        """Run a command as a role, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "errata", command, str(self.net), *more],
            env=self.environ(role) | variables,
            cwd=self.folder,
            text=True,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.said += [done.stdout, done.stderr]
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, role: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a role's process; it must end well when it is told to."""
        log = self.folder / f"{role}.log"
        name = role.split(".", 1)[1]
        arguments = ["sweep", str(self.net), "--arc", name]
        if not role.startswith(SWEEPER):
            scope = name if role.startswith(SCOPE) else role
            arguments = ["run", str(self.net), "--scope", scope, "--shared"]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "errata", *arguments],
                env=self.environ(role), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file,
            )  # fmt: skip
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            status = process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait()
            self.said.append(log.read_text())
        assert status == 0, log.read_text()

    @contextmanager
    def tailing(self, role: str, arc: str, count: int) -> Iterator[Iterator[int]]:
        """Follow an arc as a role; gives the totals of so many revisions as they come."""
        log = self.folder / "tail.err"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "errata", "tail", str(self.net), arc, "--json",
                 "--from-beginning", "--limit", str(count)],
                env=self.environ(role), cwd=self.folder, stdout=subprocess.PIPE, stderr=file,
                text=True,
            )  # fmt: skip
        assert process.stdout is not None
        timer = Timer(LIMIT_S, process.kill)
        timer.start()
        try:
            yield (json.loads(line)["after"]["total"] for line in process.stdout)
            assert process.wait(LIMIT_S) == 0, log.read_text()
        finally:
            timer.cancel()
            process.kill()
            process.communicate()
            self.said.append(log.read_text())

    def begin(self, role: str) -> None:
        """Take on a role in this process, until it fails or has had time enough to."""
        place = Place(self.kafka.settings(f"{NET}.{role}"), self.folder / f"here.{role}")
        deadline = monotonic() + CLOSED_S
        worker = Worker(load(str(self.net)), place)
        if role.startswith(SWEEPER):
            worker.add_sweepers([role.removeprefix(SWEEPER)])
        else:
            worker.add_scope(role.removeprefix(SCOPE), shared=True)
        worker.run(lambda: monotonic() > deadline)

    def feed(self, *records: dict[str, object]) -> None:
        """Produce records, as a producer of the user's own with an operator's rights."""
        producer = Producer(self.kafka.settings(f"{NET}.operator"))
        for record in records:
            key = str(record["key"]).encode()
            producer.produce(FEED, json.dumps(record).encode(), key, partition=key[-1] % 2)
        assert producer.flush(LIMIT_S) == 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there, which makes the certificates")
    with secured(tmp_path_factory.mktemp("certificates")) as kafka:
        yield World(kafka, tmp_path_factory.mktemp("world"))


def price(key: str, minute: int, dollars: int) -> dict[str, object]:
    return {"key": key, "at": minute * MINUTE, "symbol": "IBM", "price": dollars}


def test_a_network_works_with_each_role_under_its_own_rights_and_no_secret_is_said(
    world: World,
) -> None:
    with ExitStack() as stack:
        for role in RUNNING:
            stack.enter_context(world.running(role))
        seen = stack.enter_context(world.tailing("reader", "sums", 5))
        world.feed(price("a0", 105, 30), price("a1", 115, 25), price("a2", 120, 25))
        world.feed(price("a3", 300, 1), price("a4", 300, 1))
        world.feed({"key": "a5", "at": "soon"})
        assert {next(seen) for _ in range(3)} == {30, 80, 25}
        revised = world.errata("operator", "revise", "prices", "replace", "--key", "a2",
                               "--set", "price=22")  # fmt: skip
        assert revised.status == 0, revised.err
        assert {next(seen) for _ in range(2)} == {77, 22}
        status = world.errata("reader", "status", "--json")
        assert status.status == 0, status.err
        letters = world.errata("reader", "dead-letters", "--json")
        assert (letters.status, len(letters.out.splitlines())) == (0, 1), letters.err
        ended = world.errata("operator", "end", "prices")
        assert ended.status == 0, ended.err
    everything = "\n".join(world.said).encode() + b"\n".join(everything_on(world.kafka))
    for user, password in world.kafka.passwords.items():
        assert password.encode() not in everything, user
    assert b"Traceback" not in everything


def everything_on(kafka: Secured) -> Iterator[bytes]:
    """Yield what all topics of the network hold."""
    consumer = Consumer(kafka.broker.settings | {"group.id": "scan", "enable.partition.eof": True})
    listed = consumer.list_topics(timeout=20).topics
    places = [
        TopicPartition(name, partition, 0)
        for name, topic in listed.items()
        if name.startswith((NET, "_errata"))
        for partition in topic.partitions
    ]
    consumer.assign(places)
    left = len(places)
    while left:
        for message in consumer.consume(1000, 1.0):
            if message.error() is not None:
                left -= 1
                continue
            yield (message.key() or b"") + (message.value() or b"")
    consumer.close()


def named(rule: AclBinding) -> str:
    operation = rule.operation.name.title().replace("_", "")
    return f"{operation}-{rule.restype.name}-{rule.name}"


def lacking(rule: AclBinding) -> str:
    operation = rule.operation.name.title().replace("_", "")
    words = {"TOPIC": "topic", "GROUP": "consumer group", "TRANSACTIONAL_ID": "transactional id"}
    return f"it lacks {operation} on {words[rule.restype.name]} '{rule.name}"


@pytest.mark.parametrize("role", RUNNING)
def test_each_right_that_is_taken_away_ends_its_role_at_once_with_what_is_missing(
    world: World, role: str
) -> None:
    missed = []
    for rule in world.rules[role]:
        began = monotonic()
        with world.kafka.without(rule):
            try:
                world.begin(role)
                missed.append(f"{named(rule)} is not needed")
                continue
            except RefusedError as error:
                said = str(error)
        took_s = monotonic() - began
        if lacking(rule) not in said or "\n" in said or took_s > CLOSED_S:
            missed.append(f"{named(rule)} after {took_s:.1f} s: {said}")
        assert f"--allow-principal User:{NET}.{role} " in said
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize(
    ("role", "operation", "name", "command"),
    [
        ("reader", AclOperation.READ, f"{NET}.progress", ["status"]),
        ("reader", AclOperation.READ, f"{NET}.sums", ["tail", "sums", "--no-follow"]),
        ("operator", AclOperation.WRITE, FEED,
         ["revise", "prices", "insert", '{"key": "z", "at": 0, "symbol": "A", "price": 1}',
          "--partition", "0"]),
        ("operator", AclOperation.WRITE, f"{NET}.plan", ["end", "prices"]),
    ],
)  # fmt: skip
def test_a_tool_without_a_right_says_so_on_one_line(
    world: World, role: str, operation: AclOperation, name: str, command: list[str]
) -> None:
    (rule,) = (r for r in world.rules[role] if (r.operation, r.name) == (operation, name))
    began = monotonic()
    with world.kafka.without(rule):
        done = world.errata(role, *command)
    assert done.status == 1
    assert lacking(rule) in done.err
    assert done.err.count("\n") == 1
    assert monotonic() - began < CLOSED_S + 5  # and starting


def test_nobody_but_the_deployer_deploys(world: World) -> None:
    other = world.folder / "other.py"
    other.write_text(NETWORK.replace('Network("sealed")', 'Network("unsealed")'))
    place = Place(world.kafka.settings(f"{NET}.operator"), world.folder / "none")
    cluster = KafkaCluster(place.kafka)
    with pytest.raises(RefusedError, match=r"it lacks \w+ on topic 'unsealed\.plan'"):
        prepare(load(str(other)), place, cluster)
    cluster.close()


# -------------------------------------------------------------------- who gets in at all


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sasl.password": "wrong-password-of-a-test"}, "check .*sasl"),
        ({"sasl.username": "nobody"}, "check .*sasl"),
        ({"sasl.mechanism": "PLAIN"}, "check .*sasl"),
        ({"ssl.ca.location": "stranger.pem"}, "check security.protocol and the ssl"),
        ({"security.protocol": "PLAINTEXT"}, "check security.protocol"),
    ],
    ids=["password", "user", "mechanism", "authority", "plaintext"],
)
def test_who_is_not_let_in_is_told_once_why(world: World, wrong: dict[str, str], said: str) -> None:
    wrong = {k: str(world.kafka.folder / v) if "location" in k else v for k, v in wrong.items()}
    began, waits = monotonic(), list[str]()
    settings = world.kafka.settings(f"{NET}.reader") | wrong
    with pytest.raises(RefusedError, match=said) as error:
        await_brokers(settings, limit_s=LIMIT_S, say=waits.append)
    assert monotonic() - began < CLOSED_S
    assert "\n" not in str(error.value)
    assert str(settings["sasl.password"]) not in str(error.value)


def test_tls_to_a_port_without_it_is_told(world: World) -> None:
    plain = {"bootstrap.servers": world.kafka.broker.bootstrap_servers}
    with pytest.raises(RefusedError, match=r"check security\.protocol"):
        KafkaCluster(world.kafka.settings(f"{NET}.reader") | plain)


def test_a_process_with_a_wrong_password_ends_with_one_line_and_does_not_show_it(
    world: World,
) -> None:
    wrong = world.folder / "wrong"
    wrong.write_text("wrong-password-of-a-process\n")
    variable = {"ERRATA_KAFKA__SASL_PASSWORD_FILE": str(wrong), "ERRATA_DEBUG": ""}
    began = monotonic()
    done = world.errata("ingest.prices", "run", "--scope", "ingest.prices", **variable)
    assert monotonic() - began < CLOSED_S + 5  # and starting
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert "refuses this client" in done.err
    assert "wrong-password" not in done.err


def test_a_client_may_show_a_certificate(world: World) -> None:
    folder = world.kafka.folder
    settings = {
        "bootstrap.servers": f"{HOST}:{world.kafka.mutual}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    with pytest.raises(ClusterError):
        await_brokers(settings, limit_s=2.0, say=lambda _: None)
    shown = {
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.key.pem"),
    }
    KafkaCluster(settings | shown).close()
