"""What a network needs beside its jobs on Spark, in a thread of the driver's process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from errata.processors.declare.network import Network
from errata.run.worker import Worker
from errata.settings.place import Place


class Beside:
    """The tasks that are not on Spark, and the sweepers, at work in a thread.

    Args:
        network: The network.
        place: The cluster, registry and folder that they work with.
    """

    def __init__(self, network: Network, place: Place) -> None:
        worker = Worker(network, place)
        for scope in worker.plan.topology.process_scopes:
            worker.add_scope(scope)
        worker.add_sweepers()
        self._ended, self._thread = Event(), ThreadPoolExecutor(1, "beside Spark")
        self._work = self._thread.submit(worker.run, self._ended.is_set)

    def check(self) -> None:
        """Raise the error that has ended them, if one has."""
        if self._work.done():
            self._work.result()

    def close(self) -> None:
        """End them; open transactions are committed first. Safe to call twice."""
        self._ended.set()
        self._thread.shutdown()
