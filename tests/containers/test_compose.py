"""The demo as `docker compose up` starts it: an audit finds nothing after any fault of a container.

The tape is played again for each step: trades that are there are inserted again, cancelled ones
come back and go.
"""

import os
import subprocess
from collections.abc import Iterator
from time import monotonic, sleep
from uuid import uuid4

import pytest

from tests.containers.engine import LIMIT_S, ROOT, TAG, compose_command, docker

pytestmark = [pytest.mark.docker, pytest.mark.kafka, pytest.mark.slow]

PREVIOUS = "errata:previous"
ROLES = ("ingest", "upstream", "downstream", "sweep-trades", "sweep-totals")
SURVIVING = "1168 trades survive"


class Demo:
    """Containers of the compose file, in a project of their own; without Spark, for speed."""

    def __init__(self, *, image: str, kafka_image: str) -> None:
        self.project = f"errata-{uuid4().hex[:8]}"
        self.environ = {
            "COMPOSE_PROJECT_NAME": self.project,
            "ERRATA_IMAGE": image,
            "KAFKA_IMAGE": kafka_image,
            "TICKER_SECONDS": "8",
            "AUDIT": "--wait 120",
        }

    def compose(self, *arguments: str) -> str:
        done = subprocess.run(
            [*compose_command(), *arguments],
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
        self.compose("up", "--detach", "--no-build", *alone, *scales, *services)

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

    def audit(self) -> str:
        """Let everything be processed, and return what the audit says."""
        self.await_played()
        return self.compose("run", "--rm", "-T", "--no-deps", "audit")


@pytest.fixture(scope="module")
def demo(image: str, kafka_image: str) -> Iterator[Demo]:
    docker("tag", image, PREVIOUS)
    demo = Demo(image=PREVIOUS, kafka_image=kafka_image)
    try:
        demo.up()
        yield demo
    finally:
        demo.compose("--profile", "audit", "down", "--volumes", "--timeout", "1")
        docker("rmi", PREVIOUS)


@pytest.fixture
def fine(demo: Demo) -> Iterator[Demo]:
    """The demo, with a tape that plays; nothing may differ once a test is over."""
    demo.play()
    yield demo
    told = demo.audit()
    assert SURVIVING in told, told
    assert "modes: 0 differences" in told, told
    assert "audit: 0 differences" in told, told


def test_the_demo_comes_up(fine: Demo) -> None:
    assert {service: len(fine.containers(service)) for service in ROLES} == {
        "ingest": 1,
        "upstream": 2,
        "downstream": 2,
        "sweep-trades": 1,
        "sweep-totals": 1,
    }
    for role in ROLES:
        fine.await_ready(role)


def test_sigterm_ends_each_role_in_good_order_before_docker_kills_it(fine: Demo) -> None:
    fine.compose("stop", *ROLES)
    for role in ROLES:
        for name in fine.containers(role):
            status = docker("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip()
            assert status == "0", f"{role}: {docker('logs', '--tail', '20', name).stderr}"
    fine.up()


def test_a_scope_is_scaled_to_three_and_back_in_mid_stream(fine: Demo) -> None:
    fine.up("upstream", upstream=3)
    assert len(fine.containers("upstream")) == 3
    fine.await_played()
    fine.play()
    fine.up("upstream", upstream=1)
    assert len(fine.containers("upstream")) == 1


def test_one_container_of_each_kind_is_killed_and_started_again(fine: Demo) -> None:
    for service in ("ingest", "upstream", "downstream", "sweep-trades"):
        name = fine.containers(service)[0]
        docker("kill", name)
        docker("start", name)


def test_the_broker_is_killed_and_started_again(fine: Demo) -> None:
    (broker,) = fine.containers("kafka-1")
    docker("kill", broker)
    docker("start", broker)
    fine.await_healthy(broker)
    docker("wait", *fine.containers("ticker"))  # a user's producer may give up meanwhile
    fine.play()


def test_links_to_the_network_are_cut_and_healed(fine: Demo) -> None:
    network = f"{fine.project}_default"
    cut = [fine.containers(service)[0] for service in ("downstream", "sweep-trades")]
    for name in cut:
        assert docker("network", "disconnect", network, name).returncode == 0
    fine.await_played()
    for name in cut:
        assert docker("network", "connect", network, name).returncode == 0


def test_roles_are_upgraded_one_at_a_time(fine: Demo) -> None:
    fine.environ["ERRATA_IMAGE"] = TAG
    for role in ROLES:
        fine.up(role)
        fine.await_ready(role)
        images = {
            docker("inspect", "--format", "{{.Config.Image}}", name).stdout.strip()
            for name in fine.containers(role)
        }
        assert images == {TAG}
