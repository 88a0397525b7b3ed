"""A network on a secured broker, each role with its own user and rights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from time import monotonic

from confluent_kafka import Producer

from errata.deploy.rights import SCOPE
from errata.processors.wire.task_id import ScopeId
from errata.run.worker import Worker
from errata.settings.loading import load
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.settings import TopicSpec
from tests.errata.conftest import ROOT, Ended
from tests.kafka.secured import Secured, rules, told

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
CLOSED_S = 30.0
"""How long a role is tried without a right before it counts as one that does not need it."""
LIMIT_S = 180.0
MINUTE = 60_000


class World:
    """The network on a secured broker, and what its processes have said."""

    def __init__(self, kafka: Secured, folder: Path, network: str = NETWORK) -> None:
        self.kafka, self.folder, self.said = kafka, folder, list[str]()
        self.net = folder / "net.py"
        self.net.write_text(network)
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
        """Run a command, one word or two, as a role, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "errata", *command.split(), str(self.net), *more],
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
        if not ScopeId.parse(role).is_sweeper:
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
        if ScopeId.parse(role).is_sweeper:
            worker.add_sweepers([ScopeId.parse(role).name])
        else:
            worker.add_scope(role.removeprefix(SCOPE), shared=True)
        worker.run(lambda: monotonic() > deadline)

    def feed(self, *records: dict[str, object]) -> None:
        """Produce records, as a producer of the user's own with an operator's rights."""
        producer = Producer({**self.kafka.settings(f"{NET}.operator"), "enable.idempotence": True})
        for record in records:
            key = str(record["key"]).encode()
            producer.produce(FEED, json.dumps(record).encode(), key, partition=key[-1] % 2)
        assert producer.flush(LIMIT_S) == 0
