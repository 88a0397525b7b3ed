"""The stateful operator: a share of the groups for each key of Spark's, states in its store.

States are one list of chunks for each share, put as a whole: messages of more than some 80 KB get
lost on other ways into the store (SPARK-53870). Blocks come in any order; they are taken in that of
where they are from, so that a batch that is run again gives the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from errata.spark_jobs import replays
from errata.spark_jobs.blocks import HEADER, LETTERS, TUPLES
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.share import Done, Share

CHUNK_BYTES = 1_000_000

OUTPUT = "kind int, batch string, block binary, slab long, states long, counts map<string, long>"
"""Revisions of one share; what a header says; dead letters."""


class Operator(StatefulProcessor):  # type: ignore[misc]
    """Runs the aggregate of a job.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        chunk = StructType([StructField("chunk", BinaryType())])
        self._states = handle.getListState("states", chunk)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Take the rows of one share."""
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
        """Nothing to give back: connections live as long as the process."""


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
