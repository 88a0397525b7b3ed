"""The garbage collector of the laws' tests, and which of them have the codec by column."""

import gc
from collections.abc import Iterator
from zlib import crc32

import pytest

from errata.run.worker import tune_garbage_collector
from errata.schemas import few


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


@pytest.fixture(autouse=True)
def _codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every other test encode and decode by column, though its batches are small."""
    if crc32(request.node.nodeid.encode()) % 2:
        monkeypatch.setattr(few, "RECORDS", 0)
