"""Damage to the files of an index: noticed or without effect, and the arc stays right."""

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from errata import Network
from errata.processors.ingest import identity_index
from errata.processors.ingest.held_tuples import LostIndexError
from errata.processors.ingest.identity_index import DamagedIndexError, Index
from errata.testing import Driver
from tests.copying import copy_open
from tests.damaging import flipped, shortened, zeroed

FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long"}
COUNT = 60


def network(*, rekey: bool = False, keep: str | None = "1d") -> Network:
    net = Network("rotten")
    net.source("trades", fields=FIELDS, identity=["key"], event_time="at", keep=keep, rekey=rekey)
    return net


def row(key: int, price: int) -> dict[str, object]:
    return {"key": f"{key:040}", "at": key, "price": price}


def gone(path: Path, rng: random.Random) -> None:
    path.unlink()


DAMAGE: list[Callable[[Path, random.Random], None]] = [flipped, zeroed, shortened, gone]


class Owned:
    """A network whose index is damaged between two attempts of its owner."""

    def __init__(self, driver: Driver, rng: random.Random) -> None:
        self.driver, self.rng, self.held = driver, rng, dict[int, int]()
        (self.task,) = (t for t in driver.tasks if getattr(t, "held_tuples", None) is not None)
        self.folder = self.task.held_tuples.folder

    def work(self, epochs: int) -> None:
        for _ in range(epochs):
            for _ in range(self.rng.randrange(1, 12)):
                key, price = self.rng.randrange(COUNT), self.rng.randrange(10**6)
                if key in self.held and self.rng.random() < 0.3:
                    line = {"op": "delete", "before": row(key, self.held.pop(key))}
                elif key in self.held:
                    before, after = row(key, self.held[key]), row(key, price)
                    line = {"op": "replace", "before": before, "after": after}
                    self.held[key] = price
                else:
                    line = {"op": "insert", "after": row(key, price)}
                    self.held[key] = price
                self.driver.send("trades", line)
            self.driver.close_epoch()

    def damage(self, *, killed: bool) -> str:
        """Damage a file; killed: as it was on the disk when the attempt stopped."""
        number = self.driver.tasks.index(self.task)
        copy = self.folder.with_name("copy")
        copy_open(self.folder, copy)
        self.driver.attempts[number].close()
        if killed:
            shutil.rmtree(self.folder)
            shutil.move(copy, self.folder)
        else:
            shutil.rmtree(copy)
        files = [path for path in sorted(self.folder.iterdir()) if path.stat().st_size]
        victim, how = self.rng.choice(files), self.rng.choice(DAMAGE)
        how(victim, self.rng)
        self.driver.attempts[number] = self.task.steps()
        for _ in self.driver.attempts[number]:
            if self.task.started:
                break
        return f"{how.__name__} {victim.name}"

    def check(self) -> None:
        found = {int(each["key"]): each["price"] for each in self.driver.table("trades")}
        assert found == self.held
        assert self.driver.dead_letters() == []


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_index, "FLUSH_BYTES", 2_000)


@pytest.mark.parametrize("rekey", [False, True])
@pytest.mark.parametrize("number", range(12))
def test_random_damage_between_two_attempts_changes_nothing(number: int, rekey: bool) -> None:
    rng = random.Random(number)
    with Driver(network(rekey=rekey)) as driver:
        owned = Owned(driver, rng)
        owned.work(20)
        for _ in range(2):
            owned.damage(killed=rng.random() < 0.5)
            owned.work(5)
        owned.check()


def test_a_block_that_rots_while_the_task_runs_is_noticed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver(network()) as driver:
        owned = Owned(driver, random.Random(7))
        owned.work(20)
        index, real = owned.task.held_tuples.index, Index.get
        reads = []

        def rotten(self: Index, keys: list[bytes]) -> tuple[list[bytes], list[bytes]]:
            reads.append(keys)
            if len(reads) == 1:
                self.close()
                raise DamagedIndexError("block checksum mismatch")
            return real(self, keys)

        monkeypatch.setattr(Index, "get", rotten)
        owned.work(5)
        owned.check()
        assert owned.task.held_tuples.index is index
        told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert told == [
            "ingest.trades.0: its index is read from the arc again: block checksum mismatch"
        ]


def test_an_index_that_compaction_has_left_behind_is_read_from_the_arc_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was killed before a delete, and was away until the delete and its tombstone were gone."""
    with Driver(network()) as driver:
        driver.shared.compaction_lag_ms = 0
        owned = Owned(driver, random.Random(7))
        driver.send("trades", [{"op": "insert", "after": row(key, 1)} for key in (1, 2)])
        driver.close_epoch()
        owned.held |= {1: 1, 2: 1}
        early = owned.folder.with_name("early")
        copy_open(owned.folder, early)
        driver.send("trades", {"op": "delete", "before": row(1, owned.held.pop(1))})
        for _ in range(30):
            driver.close_epoch()
        number = driver.tasks.index(owned.task)
        driver.attempts[number].close()
        shutil.rmtree(owned.folder)
        shutil.move(early, owned.folder)
        for _ in range(2):  # the tombstone is removed by the second
            driver.cluster.compact("rotten.trades", horizons=[2**40])
        owned.task.held_tuples._compaction_lag_ms = 0
        driver.attempts[number] = owned.task.steps()
        for _ in driver.attempts[number]:
            if owned.task.started:
                break
        assert "its index is older than what compaction keeps: read again" in caplog.text
        driver.send("trades", {"op": "insert", "after": row(1, 1)})
        driver.close_epoch()
        assert driver.revisions("trades")[-1]["op"] == "insert"
        owned.held[1] = 1
        owned.check()


@pytest.mark.parametrize("kind", ["CURRENT", "MANIFEST-*", "*.log", "*.sst"])
def test_a_folder_in_place_of_a_file_is_damage(kind: str) -> None:
    with Driver(network()) as driver:
        owned = Owned(driver, random.Random(1))
        owned.work(20)
        number = driver.tasks.index(owned.task)
        driver.attempts[number].close()
        for path in owned.folder.glob(kind):
            path.unlink()
            path.mkdir()
        driver.attempts[number] = owned.task.steps()
        owned.work(5)
        owned.check()


def test_a_damaged_index_of_a_source_without_history_is_an_error() -> None:
    with Driver(network(keep=None)) as driver:
        owned = Owned(driver, random.Random(1))
        owned.work(5)
        number = driver.tasks.index(owned.task)
        driver.attempts[number].close()
        for path in owned.folder.glob("*.sst"):
            path.write_bytes(bytes(path.stat().st_size))
        driver.attempts[number] = owned.task.steps()
        with pytest.raises(LostIndexError, match="its index is lost"):
            list(driver.attempts[number])


def test_the_index_of_an_older_version_is_read_from_the_arc_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Driver(network()) as driver:
        owned = Owned(driver, random.Random(1))
        owned.work(5)
        number = driver.tasks.index(owned.task)
        driver.attempts[number].close()
        shutil.rmtree(owned.folder)
        owned.folder.mkdir()
        (owned.folder / "data.mdb").write_bytes(bytes(4096))
        driver.attempts[number] = owned.task.steps()
        owned.work(5)
        owned.check()
        assert "its index is read from the arc again" in caplog.text
        assert not (owned.folder / "data.mdb").exists()


def commit(index: Index, number: int) -> None:
    entry = [b"key%d" % number], [b"tuple"]
    index.begin(put=entry, delete=[], done=number, positions={}, resume=None)
    index.commit()


@pytest.mark.parametrize("flushes", [0, 1, 5])
def test_files_of_different_times_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: int
) -> None:
    """What lies between the list of files and the log is missing; each alone is right."""
    monkeypatch.setattr(identity_index, "FLUSH_BYTES", 1)
    index = Index(tmp_path / "index", label="x")
    commit(index, 0)
    (files,) = index.folder.glob("MANIFEST-*")
    older = files.read_bytes()
    for number in range(flushes):
        commit(index, 1 + number)
    monkeypatch.setattr(identity_index, "FLUSH_BYTES", 10**9)
    commit(index, 1 + flushes)
    killed = tmp_path / "killed"
    copy_open(index.folder, killed)
    index.close()
    (killed / files.name).write_bytes(older)
    again = Index(killed, label="x")
    if flushes:
        assert again.is_new
        assert "files of different times" in again.emptied
    else:
        assert again.done == 1
    again.close()
