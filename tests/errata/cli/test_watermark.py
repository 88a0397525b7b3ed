"""`errata watermark`: shows how far sources are, and puts back a watermark that ran ahead."""

import json
import time
from datetime import UTC, datetime

import pytest

from errata.cli import watermark
from errata.observe.network_progress import current, status
from errata.processors.plan.deployed import declare_end
from errata.processors.plan.topology import MAX_AHEAD_MS
from errata.settings.loading import load
from errata.testing import Driver
from errata.topics.cluster import DoubtfulCommitError
from tests.errata.conftest import Errata
from tests.errata.running import MINUTE, Running

DAY = 86_400_000
FAR = 4_070_908_800_000  # 2099
NOW, DAWN = 10 * DAY, 9 * DAY
"""The clock of the tasks, and the time at which the feed begins, ms since 1970."""


def insert(key: str, at: int, price: int = 2) -> dict:
    return {"op": "insert", "after": {"key": key, "at": DAWN + at, "symbol": "IBM", "price": price}}


def delete(key: str) -> dict:
    return {"op": "delete", "before": {"key": key}}


HONEST = [insert("a", MINUTE), insert("b", 40 * MINUTE)]
REFUSED = [
    insert("c", 50 * MINUTE),
    insert("gone", 51 * MINUTE),
    delete("gone"),
    insert("d", 62 * MINUTE, 7),
]


@pytest.fixture
def driver(driver: Driver) -> Driver:
    """The network of figure 1 in memory, with a clock."""
    for ingest in driver.ingests.values():
        ingest.clock_ms, ingest.certain_ms = (lambda: NOW), MAX_AHEAD_MS
    return driver


@pytest.fixture
def poisoned(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A watermark in 2099, and records that are refused for it."""
    driver.send("prices", HONEST)
    driver.close_epoch()
    driver.send("prices", insert("far", FAR - DAWN))
    driver.close_epoch()
    driver.send("prices", REFUSED)
    driver.close_epoch()
    monkeypatch.setattr(watermark, "sleep", lambda s: driver.close_epoch())
    return driver


def put_back(errata: Errata, at: str = "1970-01-10T00:45:00Z") -> dict:
    done = errata("watermark", "tape.py", "prices", "--restore", at, "--json")
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def test_results_are_those_of_a_feed_without_the_wrong_record(
    poisoned: Driver, errata: Errata
) -> None:
    assert len(poisoned.dead_letters()) == 4
    assert put_back(errata)["sent"] == 4
    poisoned.close_epoch()
    poisoned.send("prices", [insert("e", 63 * MINUTE), delete("far")])
    poisoned.close_epoch()
    with Driver(load("tape.py")) as other:
        other.send("prices", [*HONEST, *REFUSED])
        other.close_epoch()
        other.send("prices", insert("e", 63 * MINUTE))
        other.close_epoch()
        for arc in ("prices", "sums", "counts"):
            assert poisoned.table(arc) == other.table(arc)
        other.end()
        poisoned.end()
        assert poisoned.table("sums") == other.table("sums")


def test_windows_that_closed_early_open_again(
    poisoned: Driver, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts() -> list[int]:
        return [(row["window_start"] - DAWN) // MINUTE for row in poisoned.table("sums")]

    assert starts() == [-20, 0, 20, 40]
    poisoned.revisions("sums")
    monkeypatch.setattr(watermark, "send_again", lambda *_: 0)
    put_back(errata)
    poisoned.close_epoch()
    assert [revision["op"] for revision in poisoned.revisions("sums")] == ["delete", "delete"]
    assert starts() == [-20, 0]


def test_what_is_refused_is_sent_again_once(poisoned: Driver, errata: Errata) -> None:
    assert put_back(errata)["sent"] == 4
    poisoned.close_epoch()
    assert put_back(errata) == {
        "source": "prices", "time_ms": DAWN + 45 * MINUTE, "epochs": {}, "sent": 0,
    }  # fmt: skip
    again = errata("watermark", "tape.py", "prices", "--restore", "1970-01-10T00:45:00Z")
    assert "was put back before; 0 refused records sent again" in again.out


def test_a_command_that_was_cut_off_is_run_again(
    poisoned: Driver, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as cut:

        def fails(*_: object) -> None:
            raise DoubtfulCommitError("cut off")

        cut.setattr(watermark, "_send", fails)
        cut_off = errata("watermark", "tape.py", "prices", "--restore", "1970-01-10T00:45:00Z")
        assert cut_off.status != 0
    assert put_back(errata)["sent"] == 4


def test_what_stays_too_old_is_not_sent(driver: Driver, errata: Errata, monkeypatch) -> None:
    driver.send("prices", insert("a", 2 * DAY // 4))
    driver.close_epoch()
    driver.send("prices", insert("far", FAR - DAWN))
    driver.close_epoch()
    driver.send(
        "prices", [insert("old", -DAY // 2), insert("young", 2 * MINUTE - DAY // 2), {"op": "x"}]
    )
    driver.close_epoch()
    monkeypatch.setattr(watermark, "sleep", lambda s: driver.close_epoch())
    assert put_back(errata, "1970-01-10T12:01:00Z")["sent"] == 1
    driver.close_epoch()
    assert {row["key"] for row in driver.table("prices")} == {"a", "far", "young"}


def test_the_complaint_ends(poisoned: Driver, errata: Errata) -> None:
    def complained() -> bool:
        view = current(poisoned.cluster, poisoned.plan)
        return any("ahead of the clock" in c.reason for c in status(view).complaints)

    assert complained()
    put_back(errata)
    assert not complained()


def test_watermarks_are_printed_by_partition(poisoned: Driver, errata: Errata, people) -> None:
    shown = errata("watermark", "tape.py").out
    assert "2099-01-01 00:00:00" in shown
    assert "1970-01-10 00:40:00" in shown
    assert "ahead of the clock" in shown
    row = json.loads(errata("watermark", "tape.py", "prices", "--json").out)
    assert row == {
        "source": "prices",
        "partition": 0,
        "watermark_ms": FAR,
        "trusted_ms": DAWN + 40 * MINUTE,
        "ahead": True,
        "state": "ahead of the clock",
        "put_back_in_epoch": None,
    }


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("1970-01-10T00:40:00Z", "it needs a time after 1970-01-10 00:40:00"),
        ("2099-01-01T00:00:00Z", "and at most"),
        ("tomorrow", "needs the form 2026-07-15T09:30:00Z"),
    ],
)
def test_a_time_that_is_not_possible_is_refused(
    poisoned: Driver, errata: Errata, at: str, why: str
) -> None:
    done = errata("watermark", "tape.py", "prices", "--restore", at)
    assert done.status != 0
    assert why in " ".join(done.err.split())
    assert poisoned.shared.view.put_back == {}


def test_a_source_that_is_not_ahead_or_has_ended_is_refused(driver: Driver, errata: Errata) -> None:
    driver.send("prices", HONEST)
    driver.close_epoch()
    command = "watermark", "tape.py", "prices", "--restore", "1970-01-10T00:30:00Z"
    assert "is ahead of the clock" in errata(*command).err
    driver.send("prices", insert("far", FAR - DAWN))
    declare_end(driver.cluster, driver.plan, "prices")
    driver.close_epoch()
    assert "it has been declared to end" in errata(*command).err
    assert "needs a SOURCE" in " ".join(
        errata("watermark", "tape.py", "--restore", "1970-01-01").err.split()
    )


def test_tasks_that_do_not_run_are_named(
    poisoned: Driver, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark, "sleep", lambda s: None)
    monkeypatch.setattr(watermark, "LIMIT_S", 0.0)
    done = errata("watermark", "tape.py", "prices", "--restore", "1970-01-10T00:45:00Z")
    assert "ingest.prices.0 did not put the watermark back within 0 s" in done.err


@pytest.mark.kafka
def test_a_running_network_gets_its_watermark_back(running: Running) -> None:
    now_ms = time.time_ns() // 1_000_000
    running.base_ms = (now_ms - 12 * 60 * MINUTE) // (20 * MINUTE) * (20 * MINUTE)
    running.declare(2)
    file = running.folder / "moved.py"
    file.write_text(file.read_text().replace('keep="1d", id', 'keep="1d", max_ahead="99999d", id'))
    running.start()
    running.send(100)
    running.wait_for(running.at_work, "takes in what there is")
    topic, far = f"{running.name}-prices", {}
    for place in range(2):
        far[place] = {"key": f"k{place}", "at": FAR, "symbol": "z", "price": 1}
        line = {"op": "insert", "after": far[place]}
        running.producer.produce(topic, json.dumps(line).encode(), partition=place)
    running.producer.flush(30)

    def rows() -> list[dict]:
        told = running.errata("watermark", "moved.py", "prices", "--json").stdout
        return [json.loads(line) for line in told.splitlines()]

    running.wait_for(lambda: [row["ahead"] for row in rows()] == [True, True], "runs ahead")
    running.send(100)
    running.wait_for(running.at_work, "refuses what comes")
    assert running.found("up") != running.wanted()
    at = datetime.fromtimestamp(running.base_ms / 1000 + 11 * 3600, UTC).isoformat()
    restored = running.errata("watermark", "moved.py", "prices", "--restore", at, "--json")
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["sent"] == 100
    assert [row["ahead"] for row in rows()] == [False, False]
    again = running.errata("watermark", "moved.py", "prices", "--restore", at, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["sent"] == 0
    line = {"op": "delete", "before": far[0]}
    running.producer.produce(topic, json.dumps(line).encode(), partition=0)
    running.producer.flush(30)
    running.alive["k1"] = far[1]
    assert running.errata("end", "moved.py", "prices").returncode == 0
    for arc in ("up", "down"):
        running.wait_for(lambda arc=arc: running.found(arc) == running.wanted(), arc)
