"""Which bound follows another, where a job's own reports are ahead of what Spark has logged."""

from types import SimpleNamespace

import pytest

from errata.processors.reports.frontiers import Line
from errata.processors.wire.report import Report
from errata.spark_jobs.epochs import NOTHING, Bound, Epochs, OutdatedStatesError
from errata.spark_jobs.place import Place

COMPLETE = 20


def epochs(*reported: int, lowered: int = -1) -> Epochs:
    """Return what follows the reports of a job over two partitions, complete to epoch 20.

    Args:
        reported: The last epochs that its tasks have reported.
        lowered: The epoch in which a watermark was put back.
    """
    reports = [
        Report(f"job.{p}", attempt=1, done=done, watermark=10 * done)
        for p, done in enumerate(reported)
    ]
    job = SimpleNamespace(
        name="bars",
        places=[Place("trades", partition) for partition in range(len(reports))],
        outputs=("bars",),
        task_count=len(reports),
        scope=SimpleNamespace(name="bars"),
        task=lambda partition: f"job.{partition}",
        topic_partition=lambda place: place,
        codec=lambda arc: None,
    )
    view = SimpleNamespace(
        complete=lambda arc, partition: (COMPLETE, 7),
        of=lambda task: reports[int(task[-1])],
        line=lambda scope: Line([max(lowered, 0)], [150 if lowered < 0 else 70], lowered),
        frontiers=SimpleNamespace(falls=lambda task: reports[int(task[-1])].done < lowered),
        settled=lambda arc, upto: -5,
        unsettled=lambda scope, task: 0,
        writers=lambda arc, partition: [],
    )
    return Epochs(job, view)


@pytest.mark.parametrize(
    ("now", "reported", "epoch", "watermark"),
    [
        (NOTHING, (-1, -1), COMPLETE, 150),
        (NOTHING, (9, 9), COMPLETE, 150),  # states are made anew, in a new epoch
        (NOTHING, (18, 18), COMPLETE, 180),  # the watermark does not fall
        (NOTHING, (5, 9), 9, 90),  # half of a transaction is there: as far as it went, first
        (5, (9, 9), 9, 90),  # Spark has lost a batch that was reported
        (5, (5, 9), 9, 90),
        (9, (9, 9), COMPLETE, 150),
        (9, (5, 9), 9, 90),  # a report is still to be seen
        (COMPLETE, (20, 20), COMPLETE, 200),
    ],
)
def test_the_next_bound_follows_the_reports(now, reported, epoch, watermark):
    before = Bound(now, 10 * now)
    bound = epochs(*reported).next(before)
    assert (bound.epoch, bound.watermark) == (epoch, watermark)


def test_a_run_that_ends_reads_no_further_than_it_was_told():
    assert epochs(9, 9).next(Bound(9, 90), upto=Bound(15)).epoch == 15
    assert epochs(15, 15).next(Bound(15, 150), upto=Bound(15)) == Bound(15, 150)


def test_states_are_made_anew_where_a_watermark_was_put_back_and_not_before_that_epoch():
    with pytest.raises(OutdatedStatesError, match="a watermark was put back"):
        epochs(9, 9, lowered=15).next(Bound(9, 90))
    anew = epochs(9, 9, lowered=15).next(Bound())
    assert (anew.epoch, anew.watermark) == (COMPLETE, 70)
    assert epochs(9, 9, lowered=25).next(Bound()) == Bound()
    later = epochs(16, 16, lowered=15).next(Bound(16, 70))
    assert (later.epoch, later.watermark) == (16, 70)  # nothing has come since
    with pytest.raises(OutdatedStatesError):  # the report that Spark has lost was of a lower one
        epochs(9, 9).next(Bound(5, 100))
