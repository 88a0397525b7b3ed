"""The garbage collector of the laws' tests."""

import gc
from collections.abc import Iterator

import pytest

from errata.run.worker import tune_garbage_collector


@pytest.fixture(scope="module", autouse=True)
def _tuned_garbage_collector() -> Iterator[None]:
    """Keep it from going through all modules again and again: 6 % of the laws' time.

    For these tests alone: clients that are left to it, as by a process that is killed in a test,
    go on looking for their brokers.
    """
    before = gc.get_threshold()
    tune_garbage_collector()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
