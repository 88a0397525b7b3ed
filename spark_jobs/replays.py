"""What the states can't tell: asked of sweepers over topics, from an executor."""

from __future__ import annotations

import secrets
import time

import polars as pl

from processors.boxes.answers import Need
from processors.desk import TopicDesk
from processors.replay import Ask
from processors.task import Shared
from processors.view import View
from spark_jobs.epochs import Batch
from spark_jobs.job import Job

IDLE_S = 0.002


class Replays:
    """Asks for one process on an executor.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._desk: TopicDesk | None = None

    def _open(self) -> TopicDesk:
        if self._desk is None:
            job = self.job
            cluster = job.cluster()
            view = View(cluster, plan=job.plan)
            shared = Shared(cluster, job.plan, job.registry, view, job.compaction_lag_ms)
            self._desk = TopicDesk(shared, scope=job.scope.name, partition=0)
            self._desk.number = secrets.randbits(48) << 8  # others ask under the same name
        return self._desk

    def inputs(self, need: Need, batch: Batch) -> pl.DataFrame:
        """Return the aggregate's inputs in some event times of groups, as of the batch.

        Raises:
            ReplayRefusedError: If a sweeper can't give a complete answer.
        """
        job = self.job
        path = job.plan.paths[job.name]
        asks = [
            Ask(
                anchor.arc.name,
                batch.epoch,
                anchor.ranges(need.ranges),
                everywhere=True,
            )
            for anchor in path.anchors
        ]
        answering = self._open().answers(
            asks, task=job.task(0), attempt=job.attempts[0], epoch=batch.epoch
        )
        try:
            while True:
                next(answering)
                time.sleep(IDLE_S)
        except StopIteration as stop:
            replayed: list[pl.DataFrame] = stop.value
        return path.inputs(replayed, wm=batch.wm)


_KNOWN: dict[tuple[str, int], Replays] = {}


def desk_of(job: Job) -> Replays:
    """Return what asks for a life of a job in this process."""
    return _KNOWN.setdefault((job.transactional_id, job.attempts[0]), Replays(job))
