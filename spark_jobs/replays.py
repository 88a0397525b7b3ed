"""What the states can't tell: asked of sweepers over topics, from an executor."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Sequence

import polars as pl

from errata.processors.boxes.answers import Need
from errata.processors.boxes.replay import Ask
from errata.processors.reports.progress_view import View
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.tasks.shared import Shared
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.share import Done

IDLE_S = 0.002


class Replays:
    """Asks for one process on an executor.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._client: TopicReplayClient | None = None

    def _open(self) -> TopicReplayClient:
        if self._client is None:
            job = self.job
            cluster = job.cluster()
            view = View(cluster, plan=job.plan)
            shared = Shared(cluster, job.plan, job.registry, view, job.compaction_lag_ms)
            self._client = TopicReplayClient(shared, scope=job.scope.name, partition=0)
            self._client.number = secrets.randbits(48) << 8  # others ask under the same name
        return self._client

    def inputs(self, need: Need, batch: Batch) -> list[pl.DataFrame]:
        """Return the aggregate's inputs in some event times of groups, as of the batch.

        Raises:
            ReplayRefusedError: If a sweeper can't give a complete answer.
        """
        asks = questions(self.job, need, batch)
        answering = self._open().answers(
            asks, task=self.job.task(0), attempt=self.job.attempts[0], epoch=batch.epoch
        )
        try:
            while True:
                next(answering)
                time.sleep(IDLE_S)
        except StopIteration as stop:
            replayed: list[pl.DataFrame] = stop.value
        return self.job.plan.paths[self.job.name].inputs(replayed, wm=batch.wm)


def questions(job: Job, need: Need, batch: Batch) -> list[Ask]:
    """Return the questions that a need becomes: groups may be in any partition."""
    return [
        Ask(anchor.arc.name, batch.epoch, anchor.ranges(need.ranges), everywhere=True)
        for anchor in job.plan.paths[job.name].anchors
    ]


_KNOWN: dict[tuple[str, int], Replays] = {}


def asked(
    job: Job, batch: Batch, run: Generator[Need, Sequence[pl.DataFrame], Done | None]
) -> Done | None:
    """Run a share to its end; what it needs is asked by this process."""
    replays = _KNOWN.setdefault((job.transactional_id, job.attempts[0]), Replays(job))
    try:
        need = next(run)
        while True:
            need = run.send(replays.inputs(need, batch))
    except StopIteration as stop:
        done: Done | None = stop.value
        return done
