"""Runs jobs until they are stopped: one driver attempt after another.

A second driver of a job is rejected while the first is alive: the drivers form a consumer group;
the one that is assigned the only partition of the plan's topic runs the job. Fencing keeps the laws
whatever the group assigns; the group keeps two drivers from fencing each other for ever.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from errata.processors.plan.deployed import NewVersionError
from errata.processors.plan.plan import Plan
from errata.processors.plan.topology import Scope
from errata.processors.tasks.shared import Shared
from errata.schemas.errors import ErrataError
from errata.spark_jobs.driver import Checkpoint, Driver, JobFailedError
from errata.topics import names
from errata.topics.cluster import ClusterError, DoubtfulCommitError
from errata.topics.kafka import KafkaCluster
from errata.topics.refused import RefusedError

log = logging.getLogger("errata")

QUICK_S = 60.0
"""An attempt that fails within this time counts as a quick failure."""
MOST_QUICK = 3
"""After more quick failures in a row the job is given up."""


class NoSuchBoxError(ErrataError):
    """The named box does not run on Spark."""


@dataclass(frozen=True)
class Options:
    """Options of running jobs.

    Args:
        folder: Folder or URL of the checkpoints, one below it for each job.
        once: Whether to end when everything complete has been taken.
        every: How often a batch begins at most, as Spark writes it; as soon as there is something
            when not given.
        max_records: About how many records a batch takes at most; None: no limit.
    """

    folder: str
    once: bool = False
    every: str | None = None
    max_records: int | None = None


@dataclass
class _Attempts:
    """The successive driver attempts of one job.

    Args:
        shared: What the process shares.
        scope: The job's scope.
        session: The Spark session.
        kafka: librdkafka settings, for executors.
        options: The options of the jobs.
        registry_at: Settings of the registry server, for executors; None: schemas are in a topic.
    """

    shared: Shared
    scope: Scope
    session: Any
    kafka: Mapping[str, str | int]
    options: Options
    registry_at: Mapping[str, str | int] | None = None
    quick: int = 0

    def start(self, *, rebuild_states: bool = False) -> None:
        """Start an attempt with the existing states, or rebuild them if `rebuild_states`.

        If the outcome of claiming its attempt numbers is unknown, the next attempt follows.
        """
        while True:
            self.started_s = monotonic()
            self.driver = Driver(
                self.shared,
                self.scope,
                session=self.session,
                checkpoint=Checkpoint(self.session, f"{self.options.folder}/{self.scope.name}"),
                kafka=self.kafka,
                max_records=self.options.max_records,
                registry_at=self.registry_at,
            )
            try:
                self.driver.start(
                    once=self.options.once, every=self.options.every, rebuild_states=rebuild_states
                )
                return
            except DoubtfulCommitError as error:
                self._end(error)
            except BaseException:
                self.driver.close()
                raise

    def retry(self) -> None:
        """Start the next attempt if the last one failed and a retry may succeed."""
        try:
            self.driver.check()
        except (DoubtfulCommitError, JobFailedError, ClusterError) as error:
            if isinstance(error, RefusedError):
                raise
            lost = isinstance(error, JobFailedError) and error.states_lost
            self._end(error, how=", which rebuilds the states" if lost else "")
            self.start(rebuild_states=lost)

    def _end(self, error: ErrataError, *, how: str = "") -> None:
        """End a failed attempt; give up after too many quick failures."""
        self.driver.close()
        self.quick = self.quick + 1 if monotonic() - self.started_s < QUICK_S else 1
        if self.quick > MOST_QUICK:
            raise error
        log.warning("%s; starting a new attempt%s", error, how)


def run_jobs(
    shared: Shared,
    jobs: Sequence[str],
    *,
    session: Any,
    kafka: Mapping[str, str | int],
    options: Options,
    stop: Callable[[], bool],
    registry_at: Mapping[str, str | int] | None = None,
) -> None:
    """Run some jobs in one session; with ``once``, each after those that write what it reads.

    Args:
        shared: What the process shares.
        jobs: The scopes of their boxes.
        session: The Spark session.
        kafka: librdkafka settings, for executors.
        options: The options of the jobs.
        stop: Whether to end now.
        registry_at: Settings of the registry server, for executors; None: schemas are in a topic.

    Raises:
        JobFailedError: If one fails again and again.
        FencedError: If another driver has taken over.
        NewVersionError: If a new version of the plan is deployed, or about to be.
    """
    running, waiting = list[_Attempts](), list(jobs)
    topology = shared.plan.topology
    try:
        while (running or waiting) and not stop():
            left = {*waiting, *(job.scope.name for job in running)}
            for name in list(waiting):
                scope = topology.jobs[name]
                above = {topology.scope_of(arc) for arc in scope.inputs}
                if not (options.once and above & left):
                    waiting.remove(name)
                    job = _Attempts(shared, scope, session, kafka, options, registry_at)
                    job.start()
                    running.append(job)
            time.sleep(0.05)
            shared.view.poll()
            if shared.view.version > shared.plan.deployment.version:
                raise NewVersionError(
                    f"network {shared.plan.network!r} moves to version {shared.view.version} of "
                    f"its plan; version {shared.plan.deployment.version} ends"
                )
            for job in list(running):
                if not job.driver.is_active:
                    job.retry()
                    if not job.driver.is_active and options.once:
                        running.remove(job)
    finally:
        for job in running:
            job.driver.close()


def jobs_of(plan: Plan, boxes: Sequence[str]) -> list[str]:
    """Return the jobs of some boxes and sources on Spark, each once; all if none is named.

    Raises:
        NoSuchBoxError: If one does not run on Spark.
    """
    topology = plan.topology
    on_spark = [name for name, source in topology.sources.items() if source.on_spark]
    on_spark += topology.spark
    known = ", ".join(map(repr, on_spark)) or "none"
    for box in boxes:
        if box not in on_spark:
            raise NoSuchBoxError(
                f"network {plan.network!r} has no box {box!r} with place='spark'; it has: {known}"
            )
    return list(dict.fromkeys(map(topology.scope_of, boxes or on_spark)))


SESSION_MS = 6_000
"""A dead driver is removed after this time; brokers allow no less by default."""
PATIENCE_S = 8.0
"""How long another member may hold the job before it counts as alive."""
JOIN_S = 60.0
_POLL_S = 0.2


class AnotherDriverError(ErrataError):
    """Another driver runs the job."""


class DriverLock:
    """The right to drive one job.

    Args:
        cluster: The cluster of the network.
        network: Its name.
        scope: The job's scope.
    """

    def __init__(self, cluster: KafkaCluster, network: str, scope: str) -> None:
        self._scope = scope
        self._member: Any = cluster.membership(
            f"{network}.{scope}.driver",
            names.plan_topic(network),
            self._ignore_revocation,
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
        started_s, joined_s = monotonic(), None
        while not self._member.partitions:
            if self.error is not None:
                raise self.error
            now = monotonic()
            if self._member.joined:
                joined_s = joined_s or now
                if now > joined_s + PATIENCE_S:
                    raise AnotherDriverError(
                        f"job {self._scope!r} is run by another driver, which is alive; end that "
                        "one first, or let it run"
                    )
            elif now > started_s + JOIN_S:
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

    def _ignore_revocation(self, partitions: Collection[int]) -> None:
        """Do nothing: a driver that takes over fences this one."""
