"""A disk without room for a source's index: what comes waits, nothing is lost, it goes on."""

import logging
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from errata import Network
from errata.observe.diagnosis import complaints
from errata.observe.metric_catalogue import text_of
from errata.processors.ingest.held_tuples import HeldTuples
from errata.processors.ingest.identity_index import FullIndexError, Index, StoredIndexError
from errata.processors.ingest.ingest_task import IngestTask
from errata.processors.ingest.owner_task import OwnerTask
from errata.processors.tasks.task import Task
from errata.run.worker import Inspector
from errata.testing import Driver
from tests.errata.conftest import ROOT
from tests.processors.conftest import Clock
from tests.stuffing import fill

FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long", "note": "string"}


def network(*, rekey: bool = False) -> Network:
    net = Network("full")
    for name in ("one", "other"):
        net.source(
            name, fields=FIELDS, identity=["key"], event_time="at", keep="1d", rekey=rekey,
        )  # fmt: skip
    return net


def content(key: int, price: int) -> dict[str, Any]:
    return {"key": f"{key:040}", "at": key, "price": price, "note": "-" * 100}


def put(key: int, price: int) -> dict[str, Any]:
    return {"op": "insert", "after": content(key, price)}


def prices(driver: Driver, arc: str) -> list[int]:
    return [row["price"] for row in sorted(driver.table(arc), key=lambda row: row["at"])]


def waits(driver: Driver) -> list[str]:
    return [line for line in Inspector(driver.shared, [])(driver.tasks)[0] if " waits: " in line]


def told_by_status(driver: Driver) -> dict[str, str]:
    silent = {"ingest.one.0": None}
    return {each.task: each.reason for each in complaints(driver.shared.view, silent, now_ms=0)}


def full(driver: Driver) -> list[str]:
    page = text_of(Inspector(driver.shared, [])(driver.tasks)[1]).splitlines()
    return [line.rpartition(" ")[2] for line in page if line.startswith("errata_index_full{")]


def holdings(task: Task) -> HeldTuples:
    assert isinstance(task, IngestTask | OwnerTask)
    assert task.held_tuples is not None
    return task.held_tuples


@pytest.fixture
def on_small_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    with Driver(network()) as running:
        yield running


def test_what_comes_waits_until_there_is_room(
    on_small_disk: Driver, small_disk: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    driver = on_small_disk
    driver.send("one", [put(n, n) for n in range(100)])
    driver.close_epoch()
    assert full(driver) == ["0.0", "0.0"]

    stuffing = fill(small_disk)
    driver.send("one", [put(n, n) for n in range(100, 300)])
    driver.close_epoch()  # committed to Kafka; its index is behind
    driver.send("one", [{"op": "insert", "after": content(5, 7_000)}, put(300, 300)])
    driver.close_epoch()
    clock.pass_on()
    driver.close_epoch()
    assert prices(driver, "one") == [*range(300)]
    (line,) = waits(driver)
    assert line.startswith("task ingest.one.0 waits: index of full.one ")
    assert "No space left on device; make room" in line
    assert full(driver) == ["1.0", "0.0"]
    waiting = {"ingest.one.0": "it reads no input until the disk of its process has room"}
    assert told_by_status(driver) == waiting

    stuffing.unlink()
    clock.pass_on()
    driver.close_epoch()
    assert prices(driver, "one") == [0, 1, 2, 3, 4, 7_000, *range(6, 301)]
    assert (waits(driver), full(driver)) == ([], ["0.0", "0.0"])
    assert "never reported" in told_by_status(driver)["ingest.one.0"]  # it is said to be silent
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 2, told
    assert told[0].startswith("ingest.one.0 reads no input until its disk has room: index of ")
    assert told[1] == "ingest.one.0: its disk has room again; it continues"
    assert driver.dead_letters() == []


def test_a_new_life_on_a_full_disk_waits_too(
    on_small_disk: Driver, small_disk: Path, clock: Clock
) -> None:
    driver = on_small_disk
    driver.send("one", [put(n, n) for n in range(100)])
    driver.close_epoch()
    stuffing = fill(small_disk)
    driver.send("one", [put(n, n) for n in range(100, 300)])
    driver.close_epoch()
    again(driver, driver.tasks.index(driver.ingests["one"]))
    driver.send("one", put(5, 7_000))
    clock.pass_on()
    driver.close_epoch()
    assert len(waits(driver)) == 1
    stuffing.unlink()
    clock.pass_on()
    driver.close_epoch()
    assert prices(driver, "one") == [0, 1, 2, 3, 4, 7_000, *range(6, 300)]


def again(driver: Driver, number: int) -> None:
    """Kill a task, and start its next life."""
    driver.attempts[number].close()
    driver.attempts[number] = driver.tasks[number].steps()
    for _ in driver.attempts[number]:
        if driver.tasks[number].started:
            break


def test_a_first_index_on_a_full_disk_is_refused_and_the_process_is_not_killed(
    small_disk: Path,
) -> None:
    fill(small_disk)
    program = (
        "import sys, pathlib\nfrom errata.processors.ingest import identity_index as i\n"
        "i.Index(pathlib.Path(sys.argv[1]), label='x').is_new"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(small_disk / "new" / "index")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended
    assert "FullIndexError: index of x in 'index': " in ended.stderr
    assert "No space left on device" in ended.stderr


def no_room(*_: object, **__: object) -> None:
    raise FullIndexError("No space left on device")


def test_other_tasks_and_epochs_go_on_and_it_is_not_tried_at_every_step(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Driver(network()) as driver:
        one = holdings(driver.ingests["one"])
        tries = []
        with monkeypatch.context() as patch:
            patch.setattr(one.index, "commit", lambda: tries.append(1) or no_room())
            for n in range(10):
                for source in ("one", "other"):
                    driver.send(source, put(n, n))
                driver.close_epoch()
            assert prices(driver, "other") == [*range(10)]
            assert prices(driver, "one") == [0]
            assert driver.shared.view.frontier("ingest.one.0") == driver.epoch
            assert len(tries) == 1
        clock.pass_on()
        driver.close_epoch()
        assert prices(driver, "one") == [*range(10)]


@pytest.mark.parametrize("rekey", [False, True])
def test_no_delete_is_buried_that_an_index_has_yet_to_read(
    rekey: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver(network(rekey=rekey)) as driver:
        kind = OwnerTask if rekey else IngestTask
        task = next(t for t in driver.tasks if isinstance(t, kind) and "one" in t.name)
        driver.send("one", put(1, 1))
        driver.close_epoch()
        with monkeypatch.context() as patch:
            patch.setattr(holdings(task).index, "commit", no_room)
            driver.send("one", {"op": "delete", "before": content(1, 1)})
            driver.close_epoch()
            driver.close_epoch()
            assert task.compaction.tombstones.due(task.compaction.passed)
        clock.pass_on()
        driver.close_epoch()
        assert not task.compaction.tombstones.due(task.compaction.passed)
        driver.send("one", put(1, 2))
        driver.close_epoch()
        assert driver.revisions("one")[-1]["op"] == "insert"


def test_another_fault_of_the_disk_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def write(self, batch: object) -> None:
            raise Exception("IO error: Input/output error")  # as the store does

        def __getitem__(self, keys: list[bytes]) -> Any:
            return real[keys]

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    with Driver(network()) as driver:
        index = holdings(driver.ingests["one"]).index
        real = index.store
        monkeypatch.setattr(index, "_store", Broken())
        driver.send("one", put(1, 1))
        with pytest.raises(StoredIndexError, match="Input/output error") as error:
            driver.close_epoch()
        assert not isinstance(error.value, FullIndexError)


@pytest.mark.parametrize("rekey", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_oracle_disks_that_fill_up_and_tasks_that_die_at_random(
    seed: int, rekey: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write to an index may find no room; what comes out is what came in."""
    dice, share = random.Random(seed), [0.0]

    def failing(real: Any) -> Any:
        def call(self: Index, **given: Any) -> None:
            if dice.random() < share[0]:
                self.abort()  # as the store does
                no_room()
            real(self, **given)

        return call

    for name in ("begin", "commit"):
        monkeypatch.setattr(Index, name, failing(getattr(Index, name)))
    held: dict[int, int] = {}
    with Driver(network(rekey=rekey)) as driver:
        share[0] = 0.4
        for _ in range(60):
            for _ in range(dice.randrange(4)):
                key, price = dice.randrange(6), dice.randrange(10**6)
                if dice.random() < 0.3 and key in held:
                    driver.send("one", {"op": "delete", "before": content(key, held.pop(key))})
                else:
                    op = "replace" if key in held else "insert"
                    before = {"before": content(key, held[key])} if key in held else {}
                    driver.send("one", {"op": op, "after": content(key, price)} | before)
                    held[key] = price
            if dice.random() < 0.2:
                again(driver, dice.randrange(len(driver.tasks)))
            if dice.random() < 0.5:
                clock.pass_on()
            driver.close_epoch()
        share[0] = 0.0
        for _ in range(3):
            clock.pass_on()
            driver.close_epoch()
        assert {row["at"]: row["price"] for row in driver.table("one")} == held
        assert driver.dead_letters() == []
        assert not any(counts.get("disagreed") for counts in driver.counts().values())
        assert_chained(driver.revisions("one"))


def assert_chained(revisions: list[dict[str, Any]]) -> None:
    """One revision an identity and epoch, each with the value before."""
    known: dict[str, Any] = {}
    seen = set()
    for revision in revisions:
        before, after = revision.get("before"), revision.get("after")
        key = (before or after)["key"]
        assert before == known.pop(key, None)
        assert (key, revision["epoch"]) not in seen
        seen.add((key, revision["epoch"]))
        if after is not None:
            known[key] = after
