"""A job on a standalone master and two workers, of which a worker and the driver are killed."""

import pytest

from tests.spark_jobs.kills import DRIVER, EXECUTOR, WORKER, play


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.spark
def test_l6_a_worker_an_executor_and_the_driver_killed_in_mid_tape_change_nothing():
    kinds = [EXECUTOR, DRIVER, WORKER]
    verdict, killed, said = play(kinds, seconds=30.0, seed=1)
    assert killed == {DRIVER: 1, EXECUTOR: 1, WORKER: 1}
    assert verdict.clean, "\n".join([said, *verdict.lines()])
    assert verdict.bars == 16
