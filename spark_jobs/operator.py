"""The operator of a level, as Spark knows it.

For each batch Spark starts a Python process for each operator, only to be told which states it has.
So this module imports nothing of Errata until rows are processed, and the job travels as bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from errata.spark_jobs.job import Job


class Operator(StatefulProcessor):  # type: ignore[misc]
    """Runs the steps of a level; what is for later levels, or for the writer, passes through.

    Args:
        job: The job.
        level: The level.
    """

    def __init__(self, job: Job, level: int) -> None:
        self._pickled, self.level = cloudpickle.dumps(job), level

    @cached_property
    def job(self) -> Job:
        """The job."""
        job: Job = pickle.loads(self._pickled)
        return job

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        key = "name string, slab long, number long"
        self._states = handle.getMapState("states", key, "blob binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Process the rows of one part of a step."""
        from errata.spark_jobs import stages

        return stages.run_level(self.job, self.level, self._states, key, rows)

    def close(self) -> None:
        """Do nothing: connections live as long as the process."""
