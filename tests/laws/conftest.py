"""The garbage collector of the laws' tests, and what every other one of them does otherwise."""

import gc
from collections.abc import Iterator
from zlib import crc32

import pytest

from errata.processors.tasks.reading_again import ReadingAgain
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


@pytest.fixture(autouse=True)
def _progress_of_rebuilds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks of every other function report soon and often how far they have come.

    Of a function and not of a test: its tests may compare what they write. A rebuild that waits
    for others tells it a few times only, since laws wait until nothing is written.
    """

    def is_due(again: ReadingAgain) -> bool:
        again.told_s += bool(again.what)  # in place of the time
        number = again.told_s - again.began_s
        return bool(again.what) and number % 2 < 1 and number < 40

    if crc32(request.node.originalname.encode()) % 2:
        monkeypatch.setattr(ReadingAgain, "is_due", is_due)
