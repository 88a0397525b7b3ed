"""Docker as tests use it: the command, and the images that are built for them."""

import fcntl
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import gettempdir

import pytest

ROOT = Path(__file__).parents[2]
TAG, KAFKA_TAG = "errata:test", "errata-kafka:test"
LIMIT_S = 180.0


def docker(*arguments: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=limit_s, check=False
    )


def inject(*arguments: str) -> None:
    """Cause a fault, or end it: a command that fails would let its test pass for nothing."""
    done = docker(*arguments)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"


def require_engine() -> None:
    try:
        answer = docker("version", "--format", "{{.Server.Version}}")
    except FileNotFoundError:
        pytest.skip("Docker is not installed")
    if answer.returncode:
        pytest.skip(f"no Docker engine answers: {answer.stderr.strip()}")


def make(target: str, variables: Mapping[str, str]) -> None:
    """Build an image; of test processes that want it at once, one does, and the others find it."""
    command = ["make", "--no-print-directory", target, *(f"{k}={v}" for k, v in variables.items())]
    with (Path(gettempdir()) / "errata-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr


@cache
def compose_command() -> tuple[str, ...]:
    """Return compose v2 where there is one, else docker-compose."""
    if docker("compose", "version").returncode == 0:
        return ("docker", "compose")
    try:
        subprocess.run(["docker-compose", "version"], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("Docker has no compose")
    return ("docker-compose",)
