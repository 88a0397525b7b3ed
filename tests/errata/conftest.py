"""Running the command line: in this process, or, where that matters, in one of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from errata.cli.entry import app, declare
from errata.deploy.deployment import DeployedNetwork
from errata.processors.plan.deployed import deploy
from errata.settings.loading import load
from errata.testing import LAG_MS, Driver
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec
from tests.errata.network_file import write_network
from tests.errata.running import Running

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = re.compile(r"^%\d\|.*\|rdkafka#.*\n", re.MULTILINE)
"""What clients of other tests say of a broker that is gone; those of Errata have another name."""


@dataclass
class Ended:
    status: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "Traceback" not in self.err, self.err


Errata = Callable[..., Ended]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment without settings of whoever runs the tests."""
    foreign = ("ERRATA_", "KAFKA_", "SCHEMA_", "PYTHONUNBUFFERED")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = os.pathsep.join(filter(None, [str(ROOT), own.get("PYTHONPATH")]))
    return own | {"PYTHONPATH": path, "ERRATA_STATE": str(tmp_path / "state"), "COLUMNS": "200"}


@pytest.fixture
def errata(
    tmp_path: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Errata:
    """Run `errata` in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))

    declare()

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            app(arguments, prog_name="errata")
        out, err = capfd.readouterr()
        return Ended(int(ended.value.code or 0), out, FOREIGN.sub("", err))

    return run


def errata_in(folder: Path, environ: dict[str, str], *arguments: str, given: str = "") -> Ended:
    """Run `errata` in a process of its own, in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "errata", *arguments],
        input=given,
        text=True,
        capture_output=True,
        cwd=folder,
        env=environ,
        timeout=120,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def errata_process(tmp_path: Path, environ: dict[str, str]) -> Errata:
    """Run `errata` in a process of its own, in the test's folder."""
    return partial(errata_in, tmp_path, environ)


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let standard output be a terminal, one without colours."""
    monkeypatch.setenv("TERM", "dumb")
    for name, module in list(sys.modules.items()):
        if name.startswith("errata.cli.") and hasattr(module, "for_people"):
            monkeypatch.setattr(module, "for_people", lambda: True)


@pytest.fixture
def driver(errata: Errata, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Driver]:
    """The network of figure 1 in memory, as what the commands find deployed."""
    write_network(tmp_path)
    with in_memory(monkeypatch, "tape.py") as running:
        yield running


@contextmanager
def in_memory(monkeypatch: pytest.MonkeyPatch, net: str) -> Iterator[Driver]:
    """Run a network in memory, as what the commands find deployed."""
    with Driver(load(net)) as running:
        deploy(running.cluster, running.plan)
        schemas, kafka = SchemaRegistry(running.cluster), {"bootstrap.servers": "memory"}
        found = DeployedNetwork(running.cluster, running.plan, schemas, kafka)
        monkeypatch.setattr("errata.cli.app.open_deployment", lambda net: found)
        monkeypatch.setattr(
            "errata.deploy.deployment.log_settings", lambda kafka, topic: (True, LAG_MS)
        )
        yield running


@pytest.fixture
def running(tmp_path: Path, environ: dict[str, str], broker: EmbeddedBroker) -> Iterator[Running]:
    environ = environ | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    environ |= {"ERRATA_STATE": str(tmp_path / "state")}
    on = Running(tmp_path, environ, broker)
    create_topics(broker.settings, [TopicSpec(f"{on.name}-prices", 2)])
    yield on
    for process in on.processes:
        process.kill()
        process.wait()
