"""Runs the processes of a measured network, and reads the processor time of each."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import NamedTuple

from bench.variants import Variant
from errata.deploy.processes import ALL as ALL_PARTITIONS
from errata.deploy.processes import Part
from errata.processors.tasks.scope_task import ScopeTask
from errata.run.supervisor import CHILD_ENVIRON
from errata.run.worker import Worker, tune_garbage_collector
from errata.settings.place import Place

Settings = dict[str, str | int]
IN_ORDER: Settings = {"enable.idempotence": True}
"""A producer's setting without which a batch that is sent again comes after the next ones."""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """A variant that runs in processes of its own.

    Args:
        variant: The variant; it goes to the processes.
        kafka: Settings of the cluster.
        name: Name of the network.
        topic: The topic of the tape.
        parts: In how many processes it runs, each for a part of the partitions; None: one process
            for each scope.
    """

    variant: Variant
    kafka: Settings
    name: str
    topic: str
    parts: int | None = None

    @property
    def roles(self) -> dict[str, tuple[list[str], Part]]:
        """The scopes that each process runs, and for which part of the partitions."""
        roles = self.variant.roles
        if self.parts is None:
            return {role: (scopes, ALL_PARTITIONS) for role, scopes in roles.items()}
        scopes = list(chain.from_iterable(roles.values()))
        parts = (Part(number, self.parts) for number in range(self.parts))
        return {f"part {part.first + 1} of {part.of}": (scopes, part) for part in parts}


class Running(NamedTuple):
    """The processes of a network.

    Args:
        start: They begin when this barrier is passed.
        pids: The process id of each.
        rows: The most rows that the boxes of one have held in memory.
    """

    start: Barrier
    pids: dict[str, int]
    rows: Synchronized[int]


def work(
    run: Run, role: str, state: str, start: Barrier, stop: Event, rows: Synchronized[int]
) -> None:
    """Run one process of the network; note the most rows that its boxes have held in memory."""

    def stopped() -> bool:
        held = sum(
            live.height
            for actor in worker.steps
            if isinstance(actor, ScopeTask) and actor.started
            for live in actor.memory.live.values()
        )
        rows.value = max(rows.value, held)
        return stop.is_set()

    worker = Worker(run.variant.network(run.name, run.topic), Place(run.kafka, Path(state)))
    scopes, part = run.roles[role]
    for scope in scopes:
        worker.add_scope(scope, part=part, sweep_beside=not run.variant.apart)
    if role == "sweepers":
        worker.add_sweepers()
    start.wait()
    tune_garbage_collector()
    if os.environ.get("ERRATA_PROFILE"):
        import cProfile

        profile = cProfile.Profile(time.thread_time)
        profile.runcall(worker.run, stopped)
        profile.dump_stats(f"{os.environ['ERRATA_PROFILE']}.{role}")
    else:
        worker.run(stopped)


@contextmanager
def processes(run: Run) -> Iterator[Running]:
    """Run a network's processes."""
    context = multiprocessing.get_context("spawn")
    start, stop = context.Barrier(len(run.roles) + 1, timeout=120), context.Event()
    rows: Synchronized[int] = context.Value("q", 0)
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as state:
        children = {
            role: context.Process(target=work, args=(run, role, state, start, stop, rows))
            for role in run.roles
        }
        for variable, value in CHILD_ENVIRON.items():
            os.environ.setdefault(variable, value)
        for child in children.values():
            child.start()
        try:
            yield Running(start, {role: child.pid or 0 for role, child in children.items()}, rows)
        finally:
            stop.set()
            for child in children.values():
                child.join(20)
                if child.is_alive():
                    child.kill()


@contextmanager
def errata_up(
    network: str, kafka: Settings, folder: Path, *options: str, environ: Mapping[str, str] = {}
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `errata up` on a network.

    Args:
        network: The file of the network.
        kafka: Settings of the cluster.
        folder: For that file, the state and the log.
        options: Further options of the command.
        environ: Further variables of its environment.

    Raises:
        SystemExit: If it has ended by itself, or what is done meanwhile takes too long; with its
            log.
    """
    Path(folder, "net.py").write_text(network)
    variables = {
        "KAFKA_BOOTSTRAP_SERVERS": str(kafka["bootstrap.servers"]),
        "ERRATA_STATE": str(folder / "state"),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    log = folder / "log"
    with log.open("wb") as out:
        up = subprocess.Popen(
            [sys.executable, "-m", "errata", "up", "net.py", *options],
            cwd=folder, env={**os.environ, **variables, **environ},
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield up
        if up.poll() is not None:
            raise SystemExit(f"errata up ended:\n{log.read_text()}")
    except TimeoutError as error:
        raise SystemExit(f"{error}; errata up said:\n{log.read_text()}") from error
    finally:
        up.terminate()
        up.wait()


def broker_pid() -> int:
    """Return the process id of this process's broker; 0 if it is not known."""
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        if _read(pid, "comm").strip() == "java":
            return pid
        waiting += children(pid)
    return 0


def children(pid: int) -> list[int]:
    """Return the processes that the main thread of a process has started and that run."""
    return [*map(int, _read(pid, f"task/{pid}/children").split())]


def command_of(pid: int) -> list[str]:
    """Return the command line of a process."""
    return _read(pid, "cmdline").split("\0")


def processor_s(pid: int) -> float:
    """Return the processor time of a process so far, user and system; 0 if /proc has none."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS_A_SECOND


def memory(pid: int) -> dict[str, int]:
    """Return the resident memory of a process now and at its peak, in bytes; {} if it has ended."""
    values = dict(line.split(":", 1) for line in _read(pid, "status").splitlines())
    if "VmHWM" not in values:
        return {}
    return {key: int(values[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM")}


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
