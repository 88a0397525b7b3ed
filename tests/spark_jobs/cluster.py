"""A real standalone Spark cluster on this machine: a master and workers, processes of their own."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import pyspark

from errata.spark_jobs.session import check_java

HOST = "127.0.0.1"
LIMIT_S = 90.0
DEPLOY = "org.apache.spark.deploy"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass
class SparkCluster:
    """A master and its workers.

    Args:
        url: The master's.
        master: Its process.
        workers: Theirs.
    """

    url: str
    master: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run now."""
        found = []
        for worker in self.workers:
            for pid in descendants(worker.pid):
                if EXECUTOR in command(pid):
                    found.append(pid)
        return found

    def kill_executor(self, number: int) -> bool:
        """Kill an executor, as a fault would; returns whether there was one."""
        running = self.executors()
        if not running:
            return False
        os.kill(running[number % len(running)], signal.SIGKILL)
        return True

    def kill_worker(self, number: int) -> None:
        """Kill a worker with all that it runs."""
        worker = self.workers[number]
        for pid in [*descendants(worker.pid), worker.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        worker.wait()


@contextmanager
def spark_cluster(folder: Path, *, workers: int) -> Iterator[SparkCluster]:
    """Start a cluster; everything of it goes with the context."""
    home = Path(pyspark.__file__).parent
    environ = os.environ | {
        "JAVA_HOME": str(check_java().resolve().parent.parent),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [home / "bin" / "spark-class", *arguments],
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(_end, process)
            return process

        ports = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        master = start("master", f"{DEPLOY}.master.Master", *ports)
        url = _told(folder / "master.log", "Starting Spark master at ")
        found = SparkCluster(url, master)
        for number in range(workers):
            name = f"worker{number}"
            found.workers.append(
                start(
                    name, f"{DEPLOY}.worker.Worker", *ports, "--cores", "1", "--memory", "1g", url
                )
            )
        for number in range(workers):
            _told(folder / f"worker{number}.log", "Successfully registered with master ")
        yield found


def _told(log: Path, words: str) -> str:
    """Return the word that follows some words in a log, once they are there."""
    deadline = monotonic() + LIMIT_S
    while True:
        text = log.read_text(errors="replace")
        if words in text:
            return text.partition(words)[2].split()[0]
        assert monotonic() < deadline, text
        sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.kill()
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return the process ids of a process's children, and theirs."""
    try:
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = {int(p) for t in threads for p in _read(t).split()} | set(map(int, told.split()))
    return [found for child in children for found in (*descendants(child), child)]


def command(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    return _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
