"""The processes of a network, each under a supervisor of its own, and what they say.

`errata up` has one supervisor for all, which ends all when one must not go on. Here a process may
have to end so (a zombie that was replaced), while the others stay, as in a cluster of machines.
"""

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from errata.run.supervisor import ProcessFailedError, Supervisor
from tests.faults import preload

TEMPORARY = 75
_BAD = re.compile(r"Traceback|internal error|panicked|Fatal Python|core dumped|Exception ignored")
_ENDED = re.compile(r"ended with (?:status (\d+)|signal (\d+))")


class Journal:
    """What the processes say, and which of it is a fault of theirs.

    Args:
        file: Where all of it is written.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._out = file.open("a", encoding="utf-8")
        self.complaints: list[str] = []
        self.ends: Counter[str] = Counter()
        """How processes have ended: by status or signal."""
        self._expected: Counter[tuple[str, str]] = Counter()
        self.may_end: set[tuple[str, str]] = set()
        """Processes that may end now, with how they may: no complaint."""
        self._starts = time.monotonic()

    def note(self, line: str) -> None:
        """Write a line of the campaign's own."""
        self._out.write(f"{time.monotonic() - self._starts:8.3f} {line}\n")
        self._out.flush()

    def expect(self, name: str, end: str) -> None:
        """Let the next end of a process, as ``signal 9``, be no complaint."""
        self._expected[name, end] += 1

    def heard(self, line: str) -> None:
        """Take a line that a supervisor forwards or says."""
        self.note(line)
        _, _, said = line.partition(": ")
        if said.startswith("{"):
            with suppress(ValueError):
                record = json.loads(said)
                said = f"{record['message']} {record.get('exception', '')}"
        if _BAD.search(said or line):
            self.complaints.append(line)
        if not said and (ended := _ENDED.search(line)):
            self._ended(line.split(" ended with")[0], line, *ended.groups())

    def _ended(self, name: str, line: str, status: str | None, number: str | None) -> None:
        end = f"status {status}" if status else f"signal {number}"
        self.ends[end] += 1
        if (name, end) in self.may_end:
            return
        if self._expected[name, end]:
            self._expected[name, end] -= 1
        elif status != str(TEMPORARY):
            self.complaints.append(line)

    def close(self) -> None:
        """Close the file."""
        self._out.close()


class Processes:
    """Runs the processes of a network, each under its own supervisor.

    Args:
        commands: Their command lines by name.
        environ: Their environment.
        journal: Takes what they say.
    """

    def __init__(
        self, commands: Mapping[str, Sequence[str]], environ: Mapping[str, str], journal: Journal
    ) -> None:
        self.commands, self.environ, self.journal = dict(commands), dict(environ), journal
        self.folder = Path(environ["ERRATA_STATE"]).parent
        for name in commands:
            preload.write(self.control(name))
        self._supervisors = {name: self._supervisor(name) for name in commands}
        self._states: dict[str, str] = {}

    def _supervisor(self, name: str, **environ: str) -> Supervisor:
        harmed = preload.environ(self.control(name)) if preload.compiled() else {}
        return Supervisor(
            {name: self.commands[name]},
            environ=self.environ | harmed | environ,
            say=self.journal.heard,
        )

    def control(self, name: str) -> Path:
        """Return the file that says what the machine of a process suffers from."""
        return self.folder / f"control.{name}"

    @property
    def names(self) -> list[str]:
        """Names of all processes."""
        return list(self.commands)

    def start(self) -> None:
        """Start all processes."""
        for supervisor in self._supervisors.values():
            supervisor.start()

    def poll(self) -> None:
        """Start processes again that have ended."""
        for supervisor in self._supervisors.values():
            try:
                supervisor.poll()
            except ProcessFailedError as error:
                if (error.name, f"status {error.status}") not in self.journal.may_end:
                    self.journal.complaints.append(str(error))
                self.journal.note(str(error))
                supervisor.start()

    def pid(self, name: str) -> int | None:
        """Return the id of a process, if it runs."""
        return self._supervisors[name].pids.get(name)

    def state_of(self, name: str) -> Path:
        """Return the state folder of a process."""
        return Path(self._states.get(name, self.environ["ERRATA_STATE"]))

    def pids(self) -> dict[str, int]:
        """Return the ids of all that run."""
        return {n: pid for n, s in self._supervisors.items() for pid in s.pids.values()}

    def kill(self, name: str) -> bool:
        """Kill a process with SIGKILL; `poll` starts it again. Returns whether it ran."""
        killed = self._supervisors[name].kill(name)
        if killed:
            self.journal.expect(name, "signal 9")
        return killed

    def send(self, name: str, number: signal.Signals) -> bool:
        """Send a process a signal; returns whether it ran."""
        pid = self.pid(name)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def replace(self, name: str, *, state: Path) -> "Zombie":
        """Start another process in the place of one that is taken for dead, as elsewhere.

        Args:
            name: The process; it is stopped.
            state: The state folder of the new one.
        """
        zombie = Zombie(name, self._supervisors[name], self.journal)
        self._states[name] = str(state)
        self._supervisors[name] = self._supervisor(name, ERRATA_STATE=str(state))
        self._supervisors[name].start()
        return zombie

    def stop(self) -> None:
        """End all processes."""
        for name, pid in self.pids().items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            self.send(name, signal.SIGTERM)
        for supervisor in self._supervisors.values():
            supervisor.stop()


class Zombie:
    """A process that runs on after it was replaced.

    Args:
        name: Its name.
        supervisor: Its supervisor.
        journal: Takes what it says.
    """

    def __init__(self, name: str, supervisor: Supervisor, journal: Journal) -> None:
        self.name, self._supervisor, self._journal = name, supervisor, journal

    @property
    def pids(self) -> dict[str, int]:
        """Its id, while it runs."""
        return {f"zombie {name}": pid for name, pid in self._supervisor.pids.items()}

    def resume(self) -> None:
        """Let it go on."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGCONT)

    def has_ended(self) -> bool:
        """Return whether it has ended; if another has taken over its work it must, with status 1.

        A restart of it, as after status 75, is stopped at once.
        """
        try:
            self._supervisor.poll()
        except ProcessFailedError as error:
            if not re.search("fenced|a newer attempt has taken over", str(error)):
                self._journal.complaints.append(str(error))
            self._journal.note(f"zombie: {error}")
            return True
        return not self._supervisor.pids

    def stop(self) -> None:
        """End it."""
        self._supervisor.stop()


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that are there now."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path


Say = Callable[[str], None]
