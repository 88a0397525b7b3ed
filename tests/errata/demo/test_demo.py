"""`errata demo` as a newcomer runs it: in a process of its own, from somewhere else."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "errata", "demo", "--fast"]


@pytest.fixture
def environ(tmp_path):
    """A user's settings that the demo must not take for its own."""
    (tmp_path / "errata.toml").write_text('[kafka]\n"bootstrap.servers" = "nowhere:1"\n')
    theirs = {"SCHEMA_REGISTRY_URL": "http://nowhere:1", "ERRATA_KAFKA__CLIENT_ID": "theirs"}
    return os.environ | theirs | {"PYTHONPATH": str(ROOT)}


@pytest.mark.kafka
def test_the_demo_ends_with_0_differences_and_status_0(environ, tmp_path):
    done = subprocess.run(
        COMMAND, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["audit:", "0", "differences"] in lines
    assert ["modes:", "0", "differences"] in lines
    assert ["trades", "1,207"] in lines
    assert ["dead", "letters", "30"] in lines
    assert "delete 4148449878000000101: unknown identity" in done.stdout  # an unlinked one
    assert " → " in done.stdout  # some result was corrected
    assert done.stderr == ""


@pytest.mark.kafka
def test_ctrl_c_ends_the_demo_and_all_its_processes(environ, tmp_path):
    with subprocess.Popen(
        COMMAND, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as demo:
        try:
            for line in demo.stdout:
                if b"the tape plays" in line:
                    break
            children = handles(descendants(demo.pid))
            assert len(children) >= 5, line  # four of the network, and the broker
            demo.send_signal(signal.SIGINT)
            told = demo.stdout.read()
            assert demo.wait(60) == 130, told
        finally:
            demo.kill()
    assert b"Traceback" not in told
    assert [command(pid) for pid, end in children.items() if not ends(end, limit_s=20.0)] == []


def parents() -> dict[int, int]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        found[int(stat.parent.name)] = int(fields[1])
    return found


def descendants(pid: int) -> list[int]:
    children = [child for child, parent in parents().items() if parent == pid]
    return children + [found for child in children for found in descendants(child)]


def handles(processes: list[int]) -> dict[int, int]:
    """A pidfd for each process that still runs: some were Java's or Spark's helpers of a moment."""
    held = {}
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            held[pid] = os.pidfd_open(pid)
    return held


def ends(process: int, *, limit_s: float) -> bool:
    """Whether a process (its pidfd) ends in time."""
    return bool(select.select([process], [], [], limit_s)[0])


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
