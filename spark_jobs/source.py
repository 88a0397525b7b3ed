"""The source of a job: a Python data source that reads an arc in whole epochs, as blocks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from errata.processors.reports.progress_view import View
from errata.schemas.errors import ErrataError
from errata.spark_jobs import blocks, stretches
from errata.spark_jobs.epochs import Bound, Epochs
from errata.spark_jobs.job import Job
from errata.spark_jobs.stretches import Stretch

REPORT_S = 60.0
"""How long the report of a batch may take to become visible."""


class LateReportError(ErrataError):
    """A batch was taken, but its report is not visible."""


class Read(InputPartition):  # type: ignore[misc]
    """The input of one Spark task."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(stretch)


class EpochReader(DataSourceStreamReader):  # type: ignore[misc]
    """Reads a job's input in whole epochs.

    On a restart from a checkpoint the engine first calls ``partitions(end, end)`` with the last
    bound of its log.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._epochs: Epochs | None = None
        self._now = Bound()

    @property
    def epochs(self) -> Epochs:
        """The epochs, which follow the reports; created in the driver process that uses them."""
        if self._epochs is None:
            self._epochs = Epochs(self.job, View(self.job.cluster(), plan=self.job.plan))
            self._epochs.view.catch_up()
        return self._epochs

    def initialOffset(self) -> dict[str, Any]:
        """Return the bound before everything."""
        return Bound().plain()

    def latestOffset(self) -> dict[str, Any]:
        """Return the bound up to which the input is complete."""
        self.epochs.view.poll()
        return self.epochs.next(self._now).plain()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Read]:
        """Return the stretches to read between two bounds.

        Raises:
            LateReportError: If the report of the batch before can't be seen.
        """
        first, last = Bound.of(start), Bound.of(end)
        self._now = last
        if first.epoch == last.epoch:
            return []
        deadline = monotonic() + REPORT_S
        while self.epochs.reported < first.epoch:
            self.epochs.view.poll()
            if monotonic() > deadline:
                raise LateReportError(
                    f"job {self.job.name!r} has no report of epoch {first.epoch}, which its "
                    f"checkpoint has taken, in the progress topic after {REPORT_S:g} s; was the "
                    "cluster made anew? Remove the checkpoint then"
                )
        return list(map(Read, stretches.stretches(self.epochs, first, last)))

    def read(self, partition: Read) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stretch; runs on an executor."""
        stretch: Stretch = partition.value
        text = stretch.batch.text()
        for row in stretches.read(self.job, stretch, self.job.cluster()):
            if row is not None:
                yield blocks.record(*row, batch=text)


def source_of(job: Job) -> type[DataSource]:
    """Return the data source of a job, to be registered with a session under its `name_of`."""

    class EpochSource(DataSource):  # type: ignore[misc]
        """One arc in whole epochs."""

        @classmethod
        def name(cls) -> str:
            return name_of(job)

        def schema(self) -> str:
            return blocks.SCHEMA

        def streamReader(self, schema: Any) -> EpochReader:
            return EpochReader(job)

    return EpochSource


def name_of(job: Job) -> str:
    """Return the format under which a job's source is registered."""
    return f"errata-epochs-{zlib.crc32(job.transactional_id.encode()):08x}"
