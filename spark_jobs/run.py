"""Runs jobs until they are stopped: one driver attempt after another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from errata.processors.plan.deployed import NewVersionError
from errata.processors.plan.scope import Scope
from errata.processors.tasks.shared import Shared
from errata.schemas.errors import ErrataError
from errata.spark_jobs.checkpoint import Checkpoint
from errata.spark_jobs.driver import BUCKETS, Driver, JobFailedError
from errata.topics.cluster import ClusterError, DoubtfulCommitError
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
        buckets: How many parts groups are hashed into.
        once: Whether to end when everything complete has been taken.
        every: How often a batch begins at most, as Spark writes it; as soon as there is something
            when not given.
    """

    folder: str
    buckets: int = BUCKETS
    once: bool = False
    every: str | None = None


@dataclass
class _Lives:
    """The successive driver attempts of one job.

    Args:
        shared: What the process shares.
        scope: The job's.
        session: The Spark session.
        kafka: librdkafka settings, for executors.
        options: How.
    """

    shared: Shared
    scope: Scope
    session: Any
    kafka: Mapping[str, str | int]
    options: Options
    quick: int = 0

    def start(self, *, anew: bool = False) -> None:
        """Start an attempt with the existing states, or rebuild them if `anew`.

        If the outcome of claiming its attempt numbers is unknown, the next attempt follows.
        """
        while True:
            self.began_s = monotonic()
            self.driver = Driver(
                self.shared,
                self.scope,
                session=self.session,
                checkpoint=Checkpoint(self.session, f"{self.options.folder}/{self.scope.name}"),
                kafka=self.kafka,
                buckets=self.options.buckets,
            )
            try:
                self.driver.start(once=self.options.once, every=self.options.every, anew=anew)
                return
            except DoubtfulCommitError as error:
                self._end(error)
            except BaseException:
                self.driver.close()
                raise

    def go_on(self) -> None:
        """Start the next attempt if the last one failed and a retry may succeed."""
        try:
            self.driver.check()
        except (DoubtfulCommitError, JobFailedError, ClusterError) as error:
            if isinstance(error, RefusedError):
                raise
            lost = isinstance(error, JobFailedError) and error.states_lost
            self._end(error, how=", states anew" if lost else "")
            self.start(anew=lost)

    def _end(self, error: ErrataError, *, how: str = "") -> None:
        """End a failed attempt; give up after too many quick failures."""
        self.driver.close()
        self.quick = self.quick + 1 if monotonic() - self.began_s < QUICK_S else 1
        if self.quick > MOST_QUICK:
            raise error
        log.warning("%s; starting a new attempt%s", error, how)


def run_jobs(
    shared: Shared,
    boxes: Sequence[str],
    *,
    session: Any,
    kafka: Mapping[str, str | int],
    options: Options,
    stop: Callable[[], bool],
) -> None:
    """Run the jobs of some boxes in one session.

    Args:
        shared: What the process shares.
        boxes: Aggregates on Spark.
        session: The Spark session.
        kafka: librdkafka settings, for executors.
        options: How.
        stop: Whether to end now.

    Raises:
        JobFailedError: If one fails again and again.
        FencedError: If another driver has taken over.
        NewVersionError: If a new version of the plan is deployed, or about to be.
    """
    scopes = [shared.plan.scope_of(box) for box in check_boxes(shared, boxes)]
    running = list[_Lives]()
    try:
        for scope in scopes:
            job = _Lives(shared, shared.plan.scopes[scope], session, kafka, options)
            job.start()
            running.append(job)
        while running and not stop():
            time.sleep(0.05)
            shared.view.poll()
            if shared.view.version > shared.plan.version:
                raise NewVersionError(
                    f"network {shared.plan.network!r} moves to version {shared.view.version} of "
                    f"its plan; version {shared.plan.version} ends"
                )
            for job in list(running):
                if not job.driver.is_active:
                    job.go_on()
                    if not job.driver.is_active and options.once:
                        running.remove(job)
    finally:
        for job in running:
            job.driver.close()


def check_boxes(shared: Shared, boxes: Sequence[str]) -> Sequence[str]:
    """Return the boxes, after checking that each runs on Spark.

    Raises:
        NoSuchBoxError: If one is not.
    """
    there = shared.plan.spark
    for box in boxes:
        if box not in there:
            found = ", ".join(map(repr, there)) or "none"
            raise NoSuchBoxError(
                f"network {shared.plan.network!r} has no aggregate {box!r} with place='spark'; "
                f"there are: {found}"
            )
    return boxes
