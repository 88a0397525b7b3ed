"""One driver for each job: a second one is rejected while the first is alive.

The drivers of a job form a consumer group; the one that is assigned the only partition of the
plan's topic runs the job. Fencing keeps the laws whatever the group assigns; the group keeps two
drivers from fencing each other for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from time import monotonic, sleep
from typing import Any

from errata.schemas.errors import ErrataError
from errata.topics import names
from errata.topics.cluster import ClusterError
from errata.topics.kafka import KafkaCluster

SESSION_MS = 6_000
"""A dead driver is removed after this time; brokers allow no less by default."""
PATIENCE_S = 8.0
"""How long another member may hold the job before it counts as alive."""
JOIN_S = 60.0
_POLL_S = 0.2


class AnotherDriverError(ErrataError):
    """Another driver runs the job."""


class Sole:
    """The right to drive one job.

    Args:
        cluster: Where the network is.
        network: Its name.
        scope: The job's scope.
    """

    def __init__(self, cluster: KafkaCluster, network: str, scope: str) -> None:
        self._scope = scope
        self._member: Any = cluster.membership(
            f"{network}.{scope}.driver",
            names.plan_topic(network),
            self._give_up,
            session_ms=SESSION_MS,
        )
        self._ended = threading.Event()
        self.error: ErrataError | None = None
        self._thread = threading.Thread(target=self._stay, name=f"sole-{scope}", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until this process is assigned the job.

        Raises:
            AnotherDriverError: If another driver stays.
            ClusterError: If the cluster refuses, or the group can't be joined.
        """
        began, joined = monotonic(), None
        while not self._member.partitions:
            if self.error is not None:
                raise self.error
            now = monotonic()
            if self._member.joined:
                joined = joined or now
                if now > joined + PATIENCE_S:
                    raise AnotherDriverError(
                        f"job {self._scope!r} is run by another driver, which is alive; end that "
                        "one first, or leave it be"
                    )
            elif now > began + JOIN_S:
                raise ClusterError(
                    f"job {self._scope!r} could not join the consumer group of its drivers within "
                    f"{JOIN_S:g} s; see the broker's log"
                )
            sleep(0.02)

    def close(self) -> None:
        """Leave the group; safe to call twice."""
        self._ended.set()
        self._thread.join()
        self._member.close()

    def _stay(self) -> None:
        """Stay in the group for as long as the driver lives."""
        while not self._ended.wait(_POLL_S if self._member.partitions else 0.02):
            try:
                self._member.poll()
            except ErrataError as error:
                self.error = error
                return

    def _give_up(self, gone: Collection[int]) -> None:
        """Do nothing: a driver that takes over fences this one."""
