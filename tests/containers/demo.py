"""The demo as `docker compose up` starts it, in a project of its own."""

import os
import re
import subprocess
from time import monotonic, sleep
from uuid import uuid4

from tests.containers.engine import LIMIT_S, ROOT, compose_command, docker

NETWORK = "errata.demo.bars:net"
SURVIVING = "1168 trades survive"


class Demo:
    """Containers of the compose file; without Spark at first, for speed.

    Args:
        image: Of Errata.
        kafka_image: Of the brokers.
        options: Of compose, for all its commands.
    """

    def __init__(self, *options: str, image: str, kafka_image: str) -> None:
        self.options = options
        self.project = f"errata-{uuid4().hex[:8]}"
        self.environ = {
            "COMPOSE_PROJECT_NAME": self.project,
            "ERRATA_IMAGE": image,
            "KAFKA_IMAGE": kafka_image,
            "TICKER_SECONDS": "8",
            "AUDIT": "--wait 240",
            "PAGE_PORT": "0",
        }

    def compose(self, *arguments: str) -> str:
        done = subprocess.run(
            [*compose_command(), *self.options, *arguments],
            cwd=ROOT,
            env=os.environ | self.environ,
            capture_output=True,
            text=True,
            timeout=2 * LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def up(self, *services: str, **counts: int) -> None:
        """Start what does not run, and stop what is too much."""
        alone = ["--no-deps"] if services else ["--scale=spark=0"]
        scales = [f"--scale={name}={count}" for name, count in counts.items()]
        try:
            self.compose("up", "--detach", "--no-build", *alone, *scales, *services)
        except AssertionError as error:
            told = self.compose("logs", "--no-color", "--tail", "20", "topic", "deploy")
            raise AssertionError(f"{error}\n{told}") from None

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--all", "--quiet", service).split()

    def play(self) -> None:
        """Have the tape played once more."""
        (ticker,) = self.containers("ticker")
        docker("start", ticker)

    def await_played(self) -> None:
        (ticker,) = self.containers("ticker")
        assert docker("wait", ticker).stdout.strip() == "0", docker(
            "logs", "--tail", "9", ticker
        ).stderr

    def await_healthy(self, name: str) -> None:
        deadline = monotonic() + LIMIT_S
        while docker("inspect", "-f", "{{.State.Health.Status}}", name).stdout.strip() != "healthy":
            assert monotonic() < deadline, docker("logs", "--tail", "9", name).stdout
            sleep(0.5)

    def await_ready(self, role: str) -> None:
        for name in self.containers(role):
            self.await_healthy(name)

    def page(self) -> str:
        """Return the address of the page, with its token."""
        deadline = monotonic() + LIMIT_S
        while not (found := re.search(r"localhost:9470(/\S+)", self.compose("logs", "page"))):
            assert monotonic() < deadline, self.compose("logs", "page")
            sleep(0.5)
        return f"http://{self.compose('port', 'page', '9470').strip()}{found[1]}"

    def audit(self) -> str:
        """Let everything be processed, and return what the audit says: that nothing differs."""
        self.await_played()
        try:
            told = self.compose("run", "--rm", "-T", "--no-deps", "audit")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.warnings()}") from None
        assert SURVIVING in told, told
        assert "modes: 0 differences" in told, told
        assert "audit: 0 differences" in told, told
        return told

    def warnings(self) -> str:
        """Return what roles warned of, and where each task is; without lost connections."""
        lines = self.compose("logs", "--no-color", "--timestamps").splitlines()
        status = ("run", "--rm", "-T", "--no-deps", "ingest", "status", NETWORK, "--json")
        warned = [
            line
            for line in lines
            if ('"WARNING"' in line or '"ERROR"' in line) and '"errata.kafka"' not in line
        ]
        return "\n".join([*warned[-50:], self.compose(*status)])

    def down(self) -> None:
        """Leave nothing."""
        every = ["--profile", "audit", "--profile", "three", "--profile", "registry"]
        self.compose(*every, "down", "--volumes", "--timeout", "1")
