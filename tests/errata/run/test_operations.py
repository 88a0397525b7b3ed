"""What an operator does by hand: start, ask for health and metrics, stop; also without a broker."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from errata.observe.port import REFRESH_S
from errata.run.stopping import OVERDUE
from errata.run.supervisor import usable_processors
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec
from tests.errata.cli.test_run import price, send
from tests.errata.exposed import exposed
from tests.errata.network_file import write_network
from tests.errata.observe.test_port import HOST, asked, free_port

pytestmark = pytest.mark.kafka

START_S, END_S = 90.0, 10.0
NUMBERS = count()
ROLES = {
    "ingest": ["run", "tape.py", "--scope", "ingest.prices"],
    "scope": ["run", "tape.py", "--scope", "prices", "--shared"],
    "sweeper": ["sweep", "tape.py"],
    "up": ["up", "tape.py"],
}
UP = {"tasks.1", "tasks.2"} if usable_processors() > 1 else {"tasks"}


class Role:
    """A process of `errata`, with its port and what it says."""

    def __init__(self, folder: Path, environ: dict[str, str], *arguments: str) -> None:
        self.port, self.log = free_port(9), folder / f"{arguments[0]}-{len(arguments)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "errata", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environ | {"ERRATA_HTTP__LISTEN": f"{HOST}:{self.port}"},
            )

    def asked(self, path: str) -> tuple[int, str]:
        """The answer of its port; (0, "") while there is none."""
        try:
            return asked(self.port, path)
        except OSError:
            return 0, ""

    def metrics(self) -> dict:
        return exposed(self.asked("/metrics")[1])

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric over all labels that are not named."""
        found = self.metrics().items()
        wanted = set(labels.items())
        return sum(value for (of, told), value in found if of == name and wanted <= set(told))

    def await_(self, condition: Callable[[], bool], limit_s: float = START_S) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text() + str(self.asked("/readyz"))
            time.sleep(0.1)

    def await_ready(self) -> None:
        self.await_(lambda: self.asked("/readyz")[0] == 200)

    def end(self) -> int:
        """Send SIGTERM; return the status with which it ends within 10 s."""
        self.process.terminate()
        return self.process.wait(END_S)


@contextmanager
def role(folder: Path, environ: dict[str, str], *arguments: str) -> Iterator[Role]:
    found = Role(folder, environ, *arguments)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


@pytest.fixture
def name() -> str:
    """Of a network that no other test has had."""
    return f"operated{next(NUMBERS)}"


@pytest.fixture
def topic(name: str) -> str:
    return f"{name}-prices"


@pytest.fixture
def operated(
    tmp_path: Path, environ: dict[str, str], broker: EmbeddedBroker, name: str
) -> dict[str, str]:
    return network_on(broker, tmp_path, environ, name)


def network_on(
    broker: EmbeddedBroker, folder: Path, environ: dict[str, str], name: str
) -> dict[str, str]:
    write_network(folder, name=name, scope="counting")
    create_topics(broker.settings, [TopicSpec(f"{name}-prices", 2)])
    return environ | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}


def test_each_role_is_ready_tells_what_it_did_and_stops_in_order(
    tmp_path: Path, operated: dict[str, str], broker: EmbeddedBroker, topic: str
) -> None:
    with (
        role(tmp_path, operated, *ROLES["ingest"]) as ingest,
        role(tmp_path, operated, *ROLES["scope"]) as scope,
        role(tmp_path, operated, *ROLES["sweeper"]) as sweeper,
    ):
        for each in (ingest, scope, sweeper):
            each.await_ready()
            assert each.asked("/healthz")[0] == 200
        send(broker, price("a", 100, 30), price("b", 110, 25), b"no \xff revision", topic=topic)
        send(broker, price("c", 2_000, 1), topic=topic)
        ingest.await_(lambda: ingest.total("errata_records_read_total") == 4)
        assert ingest.total("errata_dead_letters_total", reason="undecodable") == 1
        assert ingest.total("errata_revisions_total", arc="prices", op="insert") == 3
        ingest.await_(lambda: ingest.total("errata_input_lag_records") <= 1)  # the commit's mark
        sweeper.await_(lambda: sweeper.total("errata_sweeper_epoch", arc="prices") > 0)
        assert scope.total("errata_task_working", scope="prices") == 2
        assert scope.total("errata_commit_seconds_count") > 0
        for each in (ingest, scope, sweeper):
            assert each.end() == 0, each.log.read_text()
            assert each.log.read_text() == ""


def test_counters_of_reports_go_on_in_the_next_process(
    tmp_path: Path, operated: dict[str, str], broker: EmbeddedBroker, topic: str
) -> None:
    for total in (2, 3):
        with role(tmp_path, operated, *ROLES["ingest"]) as ingest:
            ingest.await_ready()
            send(broker, *[price(f"{total}.{n}", 100, 1) for n in range(4 - total)], topic=topic)
            ingest.await_(lambda: ingest.total("errata_records_read_total") >= total)  # noqa: B023
            assert ingest.total("errata_attempts_total") == 2 * (total - 1)
            assert ingest.end() == 0


def test_up_is_ready_with_all_its_processes_on_the_ports_behind_its_own(
    tmp_path: Path, operated: dict[str, str]
) -> None:
    with role(tmp_path, operated, *ROLES["up"]) as up:
        up.await_ready()
        running = {labels[0][1] for name, labels in up.metrics() if "process_running" in name}
        assert running == UP
        for number in range(1, len(running) + 1):
            assert asked(up.port + number, "/readyz") == (200, "ready\n")
        assert up.end() == 0, up.log.read_text()


def test_json_logs_have_the_network_the_task_and_the_process(
    tmp_path: Path, operated: dict[str, str]
) -> None:
    strict = operated | {"ERRATA_LOG__FORMAT": "json", "ERRATA_LOG__LEVEL": "info"}
    with role(tmp_path, strict, *ROLES["up"]) as up:
        up.await_ready()
        assert up.end() == 0
    told = [json.loads(line) for line in up.log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, told))
    ports = [each for each in told if "/metrics" in each["message"] and "process" in each]
    assert {each["process"] for each in ports} == UP


# ---------------------------------------------------------------- a broker that hangs


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@contextmanager
def frozen(broker: EmbeddedBroker) -> Iterator[None]:
    """Let a broker stand still, as one whose machine hangs: connections stay, nothing answers."""
    (pid,) = (
        int(found.parent.name)
        for found in Path("/proc").glob("[0-9]*/cmdline")
        if re.search(rb"kafka\.Kafka\0" + os.fsencode(broker.folder), found.read_bytes())
        and not found.read_bytes().startswith(b"sh\0")
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", ROLES)
def test_sigterm_ends_each_role_within_10_s_though_the_broker_hangs(
    tmp_path: Path, environ: dict[str, str], own_broker: EmbeddedBroker, kind: str, topic: str
) -> None:
    operated = network_on(own_broker, tmp_path, environ, topic.removesuffix("-prices"))
    with role(tmp_path, operated, *ROLES[kind]) as found:
        found.await_ready()
        send(own_broker, price("a", 100, 30), topic=topic)
        with frozen(own_broker):
            time.sleep(2 * REFRESH_S)  # it is in the midst of something, or is not
            status = found.end()
        assert status in (0, OVERDUE), found.log.read_text()
        if status == OVERDUE:
            assert "did not end within" in found.log.read_text()
