"""A network file on a cluster: the command line, processes, and what arcs hold."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import errata
from errata.settings.loading import load

LIMIT_S = 120.0


class Running:
    """A network file, and what is done with it.

    Args:
        folder: Where it is.
        environ: Environment of its processes.
        settings: The same, by the names of `errata.toml`.
    """

    def __init__(self, folder: Path, environ: dict[str, str], settings: dict[str, Any]) -> None:
        self.folder, self.environ, self.settings = folder, environ, settings
        self.log, self.refused = folder / "log", ""
        self.processes: list[subprocess.Popen[bytes]] = []

    def declare(self, text: str) -> None:
        """Write the network's file."""
        (self.folder / "net.py").write_text(text)

    def errata(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        found = subprocess.run(
            [sys.executable, "-m", "errata", *arguments], capture_output=True, text=True,
            cwd=self.folder, env=self.environ, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert "Traceback" not in found.stderr, found.stderr
        return found

    def lines(self, *arguments: str) -> list[Any]:
        """Run a command that succeeds; return its JSON lines."""
        found = self.errata(*arguments)
        assert found.returncode == 0, found.stderr
        return [json.loads(line) for line in found.stdout.splitlines()]

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a process that stays."""
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "errata", *arguments], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=self.folder, env=self.environ | variables,
            )  # fmt: skip
        self.processes.append(started)
        return started

    def table(self, arc: str) -> list[dict[str, Any]]:
        """Return what an arc holds after its last complete epoch; nothing while that is refused."""
        network = load(str(self.folder / "net.py"))
        try:
            return errata.read(errata.Stream(network, arc), settings=self.settings).tuples
        except errata.ErrataError as error:
            self.refused = str(error)
            return []

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds, as long as the processes run."""
        deadline = monotonic() + LIMIT_S
        while not condition():
            log = self.log.read_text() if self.log.exists() else ""
            told = f"{what}\n{log}\n{self.refused}"
            assert all(process.poll() is None for process in self.processes), told
            assert monotonic() < deadline, told
            sleep(0.2)

    def close(self) -> None:
        """Kill what runs."""
        for process in self.processes:
            process.kill()
            process.wait()
