"""Runs a network in a process that stands still between measurements."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from bench.processes import Settings, memory
from errata import Network
from errata.processors.plan.topology import ingest_scope
from errata.run.worker import Worker, tune_garbage_collector
from errata.settings.place import Place


class Spent(NamedTuple):
    """What the process has spent on what was new.

    Args:
        seconds: By the clock.
        processor_s: Processor time of all its threads.
        resident_bytes: Its memory at the end.
    """

    seconds: float
    processor_s: float
    resident_bytes: int


@dataclass
class Paused:
    """A process that processes what is new when it is told to."""

    pipe: Connection

    def take(self, records: int) -> Spent:
        """Process so many records in all, counted from the first; return what it took.

        Raises:
            EOFError: If the process has failed; it says why on its stderr.
        """
        self.pipe.send(records)
        spent: Spent = self.pipe.recv()
        return spent


def work(build: Callable[[], Network], place: Place, pipe: Connection) -> None:
    """Run all of a network; after the records that it is asked for it stands still."""
    worker = Worker(build(), place)
    topology = worker.plan.topology
    for name in topology.process_scopes:
        worker.add_scope(name, sweep_beside=True)
    tune_garbage_collector()
    view = worker.shared.view
    wanted, began_s, began_cpu_s = pipe.recv(), time.monotonic(), time.process_time()

    def has_taken() -> bool:
        sources = map(ingest_scope, topology.sources)
        reports = [view.of(task) for source in sources for task in view.tasks(source)]
        if sum(report.counts.get("read", 0) for report in reports) < wanted:
            return False
        last = max(report.done for report in reports)
        tasks = (task for scope in topology.scopes for task in view.tasks(scope))
        return min(map(view.frontier, tasks)) >= last

    def stands_still() -> bool:
        """Wait to be asked for more once all is taken; return whether there is no more."""
        nonlocal wanted, began_s, began_cpu_s
        if not has_taken():
            return False
        resident = memory(multiprocessing.current_process().pid or 0)["VmRSS"]
        pipe.send(Spent(time.monotonic() - began_s, time.process_time() - began_cpu_s, resident))
        wanted = pipe.recv()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        return wanted is None

    worker.run(stands_still)


@contextmanager
def paused(build: Callable[[], Network], kafka: Settings, state: Path) -> Iterator[Paused]:
    """Run a network in a process that stands still at first.

    Args:
        build: Returns the network; a function of a module, since it goes to the process.
        kafka: Settings of the cluster.
        state: The folder of the process.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(build, Place(kafka, state), theirs))
    child.start()
    theirs.close()
    try:
        yield Paused(ours)
        ours.send(None)
    finally:
        child.join(20)
        if child.is_alive():
            child.kill()
