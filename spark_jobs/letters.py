"""Dead letters of a job, sent from executors to the driver.

The driver sends them in the transaction of their batch's report: once, however often the batch is
rerun. Between the two they are columns, like everything in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from errata.processors.boxes.base import Refused
from errata.processors.tasks.dead_letters import fail_on_refused, letters_of_tuples
from errata.processors.tasks.scope_run import EpochResult, Memory
from errata.processors.tasks.shared import STOP
from errata.processors.wire.dead_letter import DeadLetter
from errata.processors.wire.replay import pack, unpack
from errata.processors.wire.report import Report
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job

_BOX = "@box"


def packed(
    job: Job, batch: Batch, box: str, refused: Sequence[Refused], *, partition: int
) -> list[bytes]:
    """Return a block with a box's dead letters; none if the batch is already reported.

    Args:
        job: The job.
        batch: The batch in which it does.
        box: The box, one of the job's.
        refused: What it refuses.
        partition: Where the tuples lie.

    Raises:
        BoxError: If there is something, and it is to stop the job.
    """
    if not refused or batch.epoch <= job.done[partition]:
        return []
    memory = Memory(batch.epoch, batch.wm, {}, {})
    result = EpochResult(memory, {}, refused={box: list(refused)})
    if job.on_error == STOP:
        fail_on_refused(job.plan, result)
    report = Report(job.task(partition), attempt=job.attempts[partition])
    found = letters_of_tuples(job, [result], partition=partition, report=report)
    return [pack(pl.DataFrame(found).with_columns(pl.lit(box).alias(_BOX)))]


def unpacked(blocks: Iterable[bytes]) -> list[tuple[str, DeadLetter]]:
    """Return the dead letters in blocks, each with the box that refused its tuple."""
    return [
        (row.pop(_BOX), DeadLetter(**row))
        for block in blocks
        for row in unpack(block).iter_rows(named=True)
    ]
