"""The stateful operator: one share of the groups for each Spark key, with states in Spark's store.

The states of a share are one list of chunks, put as a whole: messages of more than about 80 KB get
lost on other ways into the store (SPARK-53870). Blocks arrive in any order; they are processed in
the order of their origin, so that a rerun of a batch returns bit-identical results.

The executor sends replay requests over topics for tuples that the states don't hold.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pandas as pd
import polars as pl
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from errata.processors.boxes.base import Need
from errata.processors.boxes.replay import Ask
from errata.processors.reports.progress_view import View
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.tasks.shared import Shared
from errata.spark_jobs import operator as replays
from errata.spark_jobs.blocks import HEADER, LETTERS, TUPLES
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.share import Done, Share

IDLE_S = 0.002


class Replays:
    """Sends the replay requests of one process on an executor.

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
            self._client.number = secrets.randbits(48) << 8  # others send under the same name
        return self._client

    def inputs(self, need: Need, batch: Batch) -> list[pl.DataFrame]:
        """Return the aggregate's inputs in some event-time ranges of groups, as of the batch.

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
    """Return the replay requests of a need: groups may be in any partition."""
    return [
        Ask(anchor.arc.name, batch.epoch, anchor.ranges(need.ranges), everywhere=True)
        for anchor in job.plan.paths[job.name].anchors
    ]


_KNOWN: dict[tuple[str, int], Replays] = {}


def asked(
    job: Job, batch: Batch, run: Generator[Need, Sequence[pl.DataFrame], Done | None]
) -> Done | None:
    """Run a share to its end; this process replays the tuples that it needs."""
    replays = _KNOWN.setdefault((job.transactional_id, job.attempts[0]), Replays(job))
    try:
        need = next(run)
        while True:
            need = run.send(replays.inputs(need, batch))
    except StopIteration as stop:
        done: Done | None = stop.value
        return done


CHUNK_BYTES = 1_000_000

OUTPUT = "kind int, batch string, block binary, slab long, states long, counts map<string, long>"
"""Revisions of one share; the batch's metadata; dead letters."""


class Operator(StatefulProcessor):  # type: ignore[misc]
    """Runs the aggregate of a job.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        chunk = StructType([StructField("chunk", BinaryType())])
        self._states = handle.getListState("states", chunk)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Process the rows of one share."""
        slab = int(key[1])
        given = pd.concat(list(rows)).sort_values(["kind", "origin"], kind="stable")
        batch = Batch.of(given["batch"].iloc[0])
        blocks = list(zip(given["kind"], given["block"], strict=True))
        for kind, block in blocks:
            if kind in (HEADER, LETTERS):
                yield _row(kind, batch, block)
        chunks = [] if batch.is_whole else [bytes(chunk) for (chunk,) in self._states.get()]
        run = Share(self.job, slab).take(batch, blocks, b"".join(chunks) or None)
        done = replays.asked(self.job, batch, run)
        if done is not None:
            if done.changed:
                self._save(done.packed())
            yield _row(TUPLES, batch, done.block(), slab=slab, done=done)
            for block in done.letters:
                yield _row(LETTERS, batch, block)

    def _save(self, states: bytes | None) -> None:
        if states is None:
            self._states.clear()
            return
        cuts = range(0, len(states), CHUNK_BYTES)
        self._states.put([(states[cut : cut + CHUNK_BYTES],) for cut in cuts])

    def close(self) -> None:
        """Do nothing: connections live as long as the process."""


def _row(
    kind: int, batch: Batch, block: bytes, *, slab: int = 0, done: Done | None = None
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": [kind],
            "batch": [batch.text()],
            "block": [bytes(block)],
            "slab": [slab],
            "states": [done.states.height if done else 0],
            "counts": [dict(done.counts) if done else {}],
        }
    )
