"""The stateful operator: a share of the groups for each key of Spark's, states in its store.

States are one list of chunks for each share, put as a whole: messages of more than some 80 KB get
lost on other ways into the store (SPARK-53870). Blocks come in any order; they are taken in that of
where they are from, so that a batch that is run again gives the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from processors.desk import pack, unpack
from spark_jobs import replays
from spark_jobs.blocks import HEADER, RESULTS, TUPLES
from spark_jobs.epochs import Batch
from spark_jobs.job import Job
from spark_jobs.share import Share

CHUNK_BYTES = 1_000_000

OUTPUT = "kind int, batch string, block binary, slab long, states long, counts map<string, long>"
"""Revisions of one share; of the header what it says."""


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
        bucket, slab = (int(part) for part in key)
        given = pd.concat(list(rows)).sort_values(["kind", "origin"], kind="stable")
        batch = Batch.of(given["batch"].iloc[0])
        for header in given.loc[given["kind"] == HEADER, "block"]:
            yield _row(HEADER, batch, header)
        share = Share(self.job, bucket, slab, ask=replays.desk_of(self.job).inputs)
        tuples, emitted = (
            [unpack(block) for block in given.loc[given["kind"] == kind, "block"]]
            for kind in (TUPLES, RESULTS)
        )
        empty = share.no_tuples()
        if batch.is_whole:
            if not tuples and not emitted:
                return
            before = pl.concat([share.no_results(), *emitted])
            done = share.start(batch, pl.concat([empty, *tuples]), before)
            self._save(done.states)
        else:
            chunks = [bytes(chunk) for (chunk,) in self._states.get()]
            states = unpack(b"".join(chunks)) if chunks else None
            if states is None and not tuples:
                return
            done = share.go_on(batch, states, pl.concat([empty, *tuples]))
            if done.changed:
                self._save(done.states)
        yield _row(
            TUPLES,
            batch,
            pack(done.revisions) if done.revisions.height else b"",
            slab=slab,
            states=done.states.height,
            counts=dict(done.counts),
        )

    def _save(self, states: pl.DataFrame) -> None:
        if states.is_empty():
            self._states.clear()
            return
        whole = pack(states)
        cuts = range(0, len(whole), CHUNK_BYTES)
        self._states.put([(whole[cut : cut + CHUNK_BYTES],) for cut in cuts])

    def close(self) -> None:
        """Nothing to give back: connections live as long as the process."""


def _row(
    kind: int,
    batch: Batch,
    block: bytes,
    *,
    slab: int = 0,
    states: int = 0,
    counts: dict[str, int] | None = None,
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": [kind],
            "batch": [batch.text()],
            "block": [bytes(block)],
            "slab": [slab],
            "states": [states],
            "counts": [counts or {}],
        }
    )
