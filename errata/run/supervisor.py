"""Runs the processes of a network on this machine under one parent: `errata up`.

It starts them again when they die, and forwards their output with their names.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Self

from errata.deploy.processes import Work, processes_of_a_machine
from errata.processors.plan.compiled import CompiledPlan
from errata.run.stopping import WATCH_PARENT
from errata.schemas.errors import ErrataError
from errata.settings import logs

FINAL = frozenset({1, 2})
"""Exit statuses that no restart fixes: an error of the network, the settings or the command."""
QUICK_S = 5.0
"""A process that ends sooner than this after its start counts as a quick death."""
MOST_QUICK = 5
"""After this many quick deaths in a row the process is not restarted."""
BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 5.0
STOP_S = 7.0
"""How long processes may take to end in good order; then they are killed."""


class ProcessFailedError(ErrataError):
    """A process ended in a way that a restart does not fix; all others have been stopped."""

    def __init__(self, name: str, *, status: int, why: str, last_line: str) -> None:
        self.name, self.status, self.last_line = name, status, last_line
        detail = f": {last_line}" if last_line else ""
        super().__init__(f"process {name!r} ended with {_ended(status)}, {why}{detail}")


class UnknownProcessError(ErrataError):
    """A process was named that this supervisor does not have."""


def network_commands(
    reference: str,
    plan: CompiledPlan,
    *,
    spark: Sequence[str] = (),
    apart: bool = False,
    most: int | None = None,
) -> dict[str, list[str]]:
    """Return the command line of each process of a network, by name.

    The tasks are in as many processes as there are partitions, at most as many as this machine has
    processors: ``tasks.1``, ``tasks.2`` and so on, or ``tasks``. All sweepers that are not beside
    them share one (``sweepers``), and so do all jobs on Spark (``spark``).

    Args:
        reference: The network's reference on a command line.
        plan: Its plan; placed, unless `apart`.
        spark: Options for `errata spark`.
        apart: Whether each source (``ingest.<source>``) and each scope has a process of its own.
        most: Most processes of tasks, if they are not apart; None: the processors of this machine.
    """
    errata, commands = _errata(), dict[str, list[str]]()
    for process in processes_of_a_machine(plan, most=most or usable_processors(), apart=apart):
        command = [*errata, *process.arguments(reference)]
        if process.work is Work.SCOPE:
            commands[process.id] = command
        elif process.work is Work.SWEEPER:
            commands[_unused("sweepers", commands)] = command
        else:
            commands[_unused("spark", commands)] = [*command, *spark]
    return commands


def page_command(reference: str, port: int, names: Collection[str]) -> dict[str, list[str]]:
    """Return the command line of the page of a network, by the name of its process.

    Args:
        reference: The network's reference on a command line.
        port: Its port.
        names: The names of the other processes.
    """
    return {_unused("page", names): [*_errata(), "dashboard", reference, "--port", str(port)]}


def _errata() -> list[str]:
    """Return how `errata` is started as a process of its own."""
    # -P keeps modules of the working folder from hiding Errata's, unless Errata is in that folder.
    in_working_folder = Path(__file__).resolve().parents[1] == Path.cwd().resolve()
    return [sys.executable, *([] if in_working_folder else ["-P"]), "-m", "errata"]


def usable_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _unused(name: str, names: Collection[str]) -> str:
    """Return a name for a process, with a dot before it if a scope has that name."""
    return f".{name}" if name in names else name


def print_line(line: str) -> None:
    """Write one line to standard error with a single write."""
    if logs.is_json():
        logging.getLogger("errata.up").warning(line)
        return
    sys.stderr.write(f"errata: {line}\n")
    sys.stderr.flush()


def forward_line(process: str, line: str, say: Callable[[str], None]) -> str:
    """Forward a line of a process with its name; return the message in it.

    Args:
        process: The name of the process.
        line: The line; a line of JSON stays JSON if this process logs JSON.
        say: Writes other lines.
    """
    record = logs.read_line(line) if logs.is_json() else None
    if record is None:
        say(f"{process}: {line}")
        return line
    sys.stderr.write(json.dumps({**record, "process": process}) + "\n")
    sys.stderr.flush()
    return str(record["message"])


CHILD_ENVIRON = {"POLARS_MAX_THREADS": "1"}
"""Variables of the child processes, unless the user sets them.

More threads in each process cost more processor time than they save.
"""


@dataclass
class _Child:
    """One process and its restarts."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    listener: threading.Thread | None = None
    started_s: float = 0.0
    due_s: float | None = None
    quick: int = 0
    killed: bool = False
    starts: int = 0
    last_line: str = field(default="", compare=False)


class Supervisor:
    """Keeps processes running; they end with it, however it dies.

    Each child's standard input is a pipe that ends with this process, which the variable
    `errata.run.stopping.WATCH_PARENT` announces. Its output is forwarded with its name before each
    line.

    Args:
        commands: Command line by name, in the order of starting.
        environ: Environment of the children; this process's when not given.
        child_environ: Additional variables of a child, by its name.
        say: Writes lines about the children, and their lines.
        clock_s: The clock that times restarts.
        optional: Names of processes without which the others go on.

    Example::

        with Supervisor({"one": ["sleep", "60"]}) as supervisor:
            while not stop():
                supervisor.poll()
                time.sleep(0.1)
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        environ: Mapping[str, str] | None = None,
        child_environ: Mapping[str, Mapping[str, str]] | None = None,
        say: Callable[[str], None] = print_line,
        clock_s: Callable[[], float] = monotonic,
        optional: Collection[str] = (),
    ) -> None:
        self._optional = frozenset(optional)
        self._children = {name: _Child(name, command) for name, command in commands.items()}
        variables = os.environ if environ is None else environ
        self._environ = {**CHILD_ENVIRON, **variables, WATCH_PARENT: "1"}
        self._child_environ, self._say, self._clock_s = child_environ or {}, say, clock_s

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name, of the processes that run."""
        return {c.name: c.process.pid for c in self._children.values() if c.process is not None}

    @property
    def restarts(self) -> dict[str, int]:
        """How often each process was restarted."""
        return {c.name: max(0, c.starts - 1) for c in self._children.values()}

    def start(self) -> None:
        """Start every process that does not run."""
        for child in self._children.values():
            if child.process is None:
                self._start(child)

    def poll(self) -> None:
        """Restart processes that have died; never waits. Call it a few times a second.

        Raises:
            ProcessFailedError: If a restart does not fix it; all processes have been stopped then.
        """
        for child in self._children.values():
            if child.process is None:
                if child.due_s is not None and self._clock_s() >= child.due_s:
                    self._start(child)
            elif child.process.poll() is not None:
                self._handle_end(child)

    def kill(self, name: str) -> bool:
        """Kill a process with SIGKILL, as a crash would; `poll` restarts it at once.

        Returns:
            Whether it was running.

        Raises:
            UnknownProcessError: If there is no process of that name.
        """
        child = self._children.get(name)
        if child is None:
            known = ", ".join(self._children)
            raise UnknownProcessError(f"no process {name!r} is supervised; there are {known}")
        if child.process is None or child.process.poll() is not None:
            return False
        child.killed = True
        child.process.kill()
        child.process.wait()
        return True

    def stop(self) -> None:
        """End all processes, in good order if they do so within 7 s; safe to call twice."""
        running = [c for c in self._children.values() if c.process is not None]
        for child in self._children.values():
            child.due_s = None
        for child in running:
            assert child.process is not None
            child.process.terminate()
        deadline = monotonic() + STOP_S
        for child in running:
            assert child.process is not None
            try:
                child.process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                self._say(f"{child.name} did not end within {STOP_S:g} s: killed")
                child.process.kill()
                child.process.wait()
            self._clear(child)

    def __enter__(self) -> Self:
        """Start all processes."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Stop all processes."""
        self.stop()

    # ---------------------------------------------------------------- a child

    def _start(self, child: _Child) -> None:
        child.process = subprocess.Popen(
            child.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**self._environ, **self._child_environ.get(child.name, {})},
            start_new_session=True,  # the parent handles Ctrl-C
        )
        child.started_s = self._clock_s()
        child.starts += 1
        child.due_s, child.last_line = None, ""
        child.listener = threading.Thread(target=self._listen, args=(child,), daemon=True)
        child.listener.start()
        self._say(f"{'started' if child.starts == 1 else 'restarted'} {child.name}")

    def _listen(self, child: _Child) -> None:
        assert child.process is not None
        assert child.process.stdout is not None
        for raw in child.process.stdout:
            line = raw.decode(errors="replace").rstrip().removeprefix("errata: ")
            if line:
                child.last_line = forward_line(child.name, line, self._say)

    def _clear(self, child: _Child) -> int:
        """Release the pipes of a dead process; return its exit status."""
        process, child.process = child.process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert child.listener is not None
        process.stdin.close()
        child.listener.join(1.0)  # longer only if a grandchild holds the pipe
        if not child.listener.is_alive():
            process.stdout.close()
        return int(process.returncode)

    def _handle_end(self, child: _Child) -> None:
        uptime_s = self._clock_s() - child.started_s
        status = self._clear(child)
        killed, child.killed = child.killed, False
        child.quick = 0 if killed or uptime_s >= QUICK_S else child.quick + 1
        why = ""
        if status in FINAL:
            why = "which a restart does not fix"
        elif child.quick >= MOST_QUICK:
            why = f"the {MOST_QUICK}th time within {QUICK_S:g} s of its start"
        if why and child.name in self._optional:
            self._say(f"{child.name} ended with {_ended(status)}, {why}; the others go on")
            return
        if why:
            last_line = child.last_line
            self.stop()
            raise ProcessFailedError(child.name, status=status, why=why, last_line=last_line)
        wait_s = min(BACKOFF_S * 2**child.quick, LONGEST_BACKOFF_S) if child.quick else 0.0
        child.due_s = self._clock_s() + wait_s
        self._say(f"{child.name} ended with {_ended(status)}; restarting it")


def _ended(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {-status}"
