"""A disk without room: a sweeper answers no requests, logs it, and continues by itself."""

import errno
import logging
import os
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from errata import Network, tumbling
from errata.processors.wire.report import FOR_ROOM
from errata.sweepers.segments import StoreError
from errata.sweepers.sweeper import RETRY_MS, Sweeper
from errata.testing import Driver
from tests.stuffing import fill
from tests.sweepers.copies import full_after

MINUTE = 60_000
EVERYTHING = pl.DataFrame({"from_ms": [0], "to_ms": [10_000 * MINUTE]})


class Clock:
    """A wall clock that the test turns."""

    def __init__(self) -> None:
        self.now_ms = 10**6

    def __call__(self) -> int:
        return self.now_ms


def network() -> Network:
    net = Network("full")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="10d")
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)")
    return net


def trade(number: int, *, minute: int | None = None, price: int | None = None) -> dict:
    at = (number % 1_000 if minute is None else minute) * MINUTE
    return {"key": f"{number:040}", "at": at, "price": number if price is None else price}


def inserts(driver: Driver, first: int, last: int) -> None:
    driver.send("trades", [{"op": "insert", "after": trade(n)} for n in range(first, last)])
    driver.close_epoch()


def sweeper(driver: Driver, folder: Path, clock: Clock) -> Sweeper:
    return Sweeper(
        driver.shared, "trades", partition=0, folder=folder, clock_ms=clock, segment_rows=100
    )


def follow(sweeper: Sweeper, clock: Clock) -> None:
    for _ in range(3):
        clock.now_ms += RETRY_MS
        sweeper.follow()


def prices(sweeper: Sweeper, epoch: int) -> list[int] | None:
    found = sweeper.answer(epoch, EVERYTHING)
    return None if found is None else sorted(found.tuples["price"].to_list())


def test_a_full_disk_stops_the_answers_until_there_is_room(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with Driver(network(), mode="upstream") as driver:
        inserts(driver, 0, 500)
        own = sweeper(driver, small_disk / "copy", clock)
        follow(own, clock)
        assert prices(own, 1) == list(range(500))

        stuffing = fill(small_disk)
        inserts(driver, 500, 1_000)
        follow(own, clock)
        assert "No space left on device" in own.full
        assert (prices(own, 1), prices(own, 2)) == (None, None)
        inserts(driver, 1_000, 1_100)
        follow(own, clock)
        assert prices(own, 3) is None

        stuffing.unlink()
        follow(own, clock)
        assert own.full == ""
        assert own.has_caught_up()
        assert prices(own, 3) == list(range(1_100))
        told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(told) == 2, told
        assert "sweep.trades.0 answers no requests until its disk has room: " in told[0]
        assert told[1] == "sweep.trades.0: its disk has room again; it answers requests"
        own.close()


def test_a_sweeper_that_is_killed_while_its_disk_is_full_loses_nothing(small_disk: Path) -> None:
    clock = Clock()
    with Driver(network(), mode="upstream") as driver:
        inserts(driver, 0, 500)
        own = sweeper(driver, small_disk / "copy", clock)
        follow(own, clock)
        stuffing = fill(small_disk)
        inserts(driver, 500, 1_000)
        follow(own, clock)
        own.input.close()  # it is gone, with what was in memory

        heir = sweeper(driver, small_disk / "copy", clock)
        follow(heir, clock)
        assert prices(heir, 2) is None
        stuffing.unlink()
        follow(heir, clock)
        assert prices(heir, 2) == list(range(1_000))
        heir.close()


def test_it_is_not_tried_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tries = Clock(), []
    with Driver(network(), mode="upstream") as driver:
        own = sweeper(driver, tmp_path, clock)
        inserts(driver, 0, 500)

        def full(number: int) -> None:
            tries.append(number)
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        for _ in range(10):
            own.follow()
        assert len(tries) == 1
        own.close()


def test_another_fault_of_the_disk_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with Driver(network(), mode="upstream") as driver:
        own = sweeper(driver, tmp_path, clock)
        inserts(driver, 0, 500)

        def broken(number: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(StoreError, match="Input/output error"):
            follow(own, clock)
        own.close()


def cleaned(driver: Driver, folder: Path, clock: Clock) -> Sweeper:
    """Return a sweeper that has v1, when v2 was taken by the cleaner before it was read.

    ::

        minute   0-10   20-30   40-50
                 v1 ->  v2  ->  v3        the topic has v1's insert and v3's replace only
    """
    versions = [trade(7, minute=1, price=5), trade(7, minute=25, price=6), trade(7, minute=45)]
    driver.send("trades", {"op": "insert", "after": versions[0]})
    driver.close_epoch()
    driver.shared.compaction_lag_ms = 0
    late = sweeper(driver, folder, clock)
    late.follow()
    late.input.cursor.leave()  # it is in another process than those that read in time
    for before, after in pairwise(versions):
        driver.send("trades", {"op": "replace", "before": before, "after": after})
        driver.close_epoch()
    driver.revisions("trades")
    driver.cluster.compact("full.trades", horizons=[2**40])
    return late


def first_minutes(sweeper: Sweeper) -> list[int] | None:
    asked = pl.DataFrame({"from_ms": [0], "to_ms": [10 * MINUTE]})
    found = sweeper.answer(3, asked)
    return None if found is None else found.tuples["price"].to_list()


@pytest.mark.parametrize("writes", range(4))
def test_what_may_be_stale_is_never_answered_though_the_disk_is_full_and_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    clock = Clock()
    with Driver(network(), mode="upstream") as driver:
        late = cleaned(driver, tmp_path, clock)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full_after(writes))
            follow(late, clock)
            assert first_minutes(late) in (None, [])
        late.input.close()  # it is gone

        heir = sweeper(driver, tmp_path, clock)
        assert first_minutes(heir) in (None, [])
        follow(heir, clock)
        assert first_minutes(heir) == []
        heir.close()


def test_a_floor_that_readers_raise_does_not_make_stale_versions_right(tmp_path: Path) -> None:
    clock = Clock()
    with Driver(network(), mode="upstream") as driver:
        late = cleaned(driver, tmp_path, clock)
        late.incomplete_upto = 2  # as if more of what is old were still to come
        late.store.raise_floor(3)
        assert first_minutes(late) is None
        follow(late, clock)
        assert first_minutes(late) == []
        late.close()


def test_that_it_waits_for_room_is_in_its_report_until_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with Driver(network(), mode="upstream") as driver:
        inserts(driver, 0, 500)
        own = sweeper(driver, tmp_path / "copy", clock)
        follow(own, clock)
        inserts(driver, 500, 1_000)

        def no_room(number: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", no_room)
            follow(own, clock)
        driver.shared.view.poll()
        assert driver.shared.view.of(own.name).waits == FOR_ROOM
        follow(own, clock)
        driver.shared.view.poll()
        assert driver.shared.view.of(own.name).waits == 0
        own.close()
