"""Runs jobs until told to stop: one life of a driver after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from processors.deployed import NewVersionError
from processors.task import Shared
from schemas.errors import ErrataError
from spark_jobs.checkpoint import Checkpoint
from spark_jobs.driver import BUCKETS, Driver, JobFailedError
from topics.cluster import ClusterError, DoubtfulCommitError

log = logging.getLogger("errata")

QUICK_S = 60.0
"""A life that fails sooner failed quickly."""
MOST_QUICK = 3
"""After so many quick failures in a row the job is given up."""


class NoSuchBoxError(ErrataError):
    """A box was named that is not on Spark."""


@dataclass(frozen=True)
class Options:
    """How jobs run.

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
class _Running:
    """One job, and how its lives ended."""

    scope: str
    driver: Driver
    began_s: float = field(default_factory=monotonic)
    quick: int = 0


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
    running = [_Running(scope, _start(shared, scope, session, kafka, options)) for scope in scopes]
    try:
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
                    _revive(job, shared, session, kafka, options)
                    if not job.driver.is_active and options.once:
                        running.remove(job)
    finally:
        for job in running:
            job.driver.close()


def check_boxes(shared: Shared, boxes: Sequence[str]) -> Sequence[str]:
    """Return the boxes, each of them on Spark.

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


def _start(
    shared: Shared,
    scope: str,
    session: Any,
    kafka: Mapping[str, str | int],
    options: Options,
    *,
    anew: bool = False,
) -> Driver:
    driver = Driver(
        shared,
        shared.plan.scopes[scope],
        session=session,
        checkpoint=Checkpoint(session, f"{options.folder}/{scope}"),
        kafka=dict(kafka),
        buckets=options.buckets,
    )
    try:
        driver.start(once=options.once, every=options.every, anew=anew)
    except BaseException:
        driver.close()
        raise
    return driver


def _revive(
    job: _Running,
    shared: Shared,
    session: Any,
    kafka: Mapping[str, str | int],
    options: Options,
) -> None:
    """Start a job's next life if its last one failed of something that may be cured by that."""
    try:
        job.driver.check()
    except (DoubtfulCommitError, JobFailedError, ClusterError) as error:
        job.quick = job.quick + 1 if monotonic() - job.began_s < QUICK_S else 1
        if job.quick > MOST_QUICK:
            raise
        lost = isinstance(error, JobFailedError) and error.states_lost
        log.warning("%s; starting a new attempt%s", error, ", states anew" if lost else "")
        job.driver.close()
        job.began_s = monotonic()
        job.driver = _start(shared, job.scope, session, kafka, options, anew=lost)
