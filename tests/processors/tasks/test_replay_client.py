"""Answers come in parts: what is requested, taken and held at once is bounded."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from errata import Network, tumbling
from errata.processors.boxes.replay import ReplayQuery
from errata.processors.tasks import replay_client, scope_run
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.wire import replay
from errata.processors.wire.replay import Reply, Request, size_of
from errata.sweepers import segments
from errata.sweepers.sweeper import Service, Sweeper
from errata.testing import Driver
from errata.topics.cluster import TopicPartition

MINUTE = 60_000
WINDOW = {"from_ms": [0], "to_ms": [10 * MINUTE]}
GROUPS = 30


def network(mode: str = "upstream") -> Network:
    net = Network("parts")
    fields = {"key": "string", "at": "timestamp-millis", "account": "string", "amount": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate(
        "sums",
        by=["account"],
        window=tumbling("10m"),
        mode=mode,
        keep="1d",
        total="sum(amount)",
        largest="max(amount)",
    )
    return net


def trade(group: int, number: int, amount: int) -> dict[str, object]:
    key, at = f"{group}.{number}", number * MINUTE // 100 + group
    return {"key": key, "at": at, "account": f"account {group}", "amount": amount}


def load(driver: Driver, each: int) -> None:
    """Send the trades of a window, and close it."""
    for number in range(each):
        rows = [trade(group, number, number) for group in range(GROUPS)]
        driver.send("trades", [{"op": "insert", "after": row} for row in rows])
    driver.close_epoch()
    late = {"key": "late", "at": 60 * MINUTE, "account": "late", "amount": 1}
    driver.send("trades", {"op": "insert", "after": late})
    driver.close_epoch()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the copy of a small arc can be cut."""
    monkeypatch.setattr(segments, "BLOCK_ROWS", 16)


class Asked:
    """A client and a sweeper over topics."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver = driver
        sweeper = Sweeper(driver.shared, "trades", partition=0, folder=folder)
        self.service = Service(driver.shared, sweeper)
        self.steps = self.service.steps()
        self.client = TopicReplayClient(driver.shared, scope="trades", partition=0)
        topics = {
            name: TopicPartition(f"parts.trades.{name}", 0) for name in ("requests", "replay")
        }
        self.readers = {name: driver.cluster.reader({p: 0}) for name, p in topics.items()}

    def fetch(self, *queries: ReplayQuery) -> list[pl.DataFrame]:
        report = self.driver.shared.view.of("trades.0")
        waiting = self.client.fetch(
            queries, task="trades.0", attempt=report.attempt, epoch=report.done
        )
        for _ in range(100_000):
            try:
                next(waiting)
            except StopIteration as stop:
                answers: list[pl.DataFrame] = stop.value
                return answers
            next(self.steps)
        raise AssertionError("no answer")

    def values(self, name: str) -> list[bytes]:
        return [value for part in self.readers[name].poll() for value in part.values if value]

    def requests(self) -> list[Request]:
        found = map(replay.decode_request, self.values("requests"))
        return [request for request in found if request is not None]

    def replies(self) -> list[Reply]:
        return [r for r in map(replay.decode_reply, self.values("replay")) if r is not None]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    with Driver(network()) as driver:
        load(driver, 20)
        yield Asked(driver, tmp_path / "sweeper")


def query(asked: Asked, groups: Sequence[str], take: Any = None) -> ReplayQuery:
    done = asked.driver.shared.view.of("trades.0").done
    accounts = pl.DataFrame({"account": groups}, schema={"account": pl.String})
    ranges = pl.DataFrame(WINDOW).join(accounts, how="cross")
    return ReplayQuery("trades", done, ranges, take=take)


ACCOUNTS = [f"account {group}" for group in range(GROUPS)]


def test_ranges_that_do_not_fit_into_a_request_are_sent_in_several(asked: Asked) -> None:
    unknown = [f"an account that nobody has, with a long name: {n}" for n in range(20_000)]
    (answer,) = asked.fetch(query(asked, [*ACCOUNTS[:10], *unknown, *ACCOUNTS[10:]]))
    assert answer.height == GROUPS * 20
    sizes = [len(request.ranges) for request in asked.requests()]
    assert len(sizes) > 1
    assert max(sizes) <= replay_client.RANGES_BYTES


@pytest.mark.parametrize("groups", [ACCOUNTS, ["nobody"], []])
def test_a_whole_answer_is_put_together_from_parts(asked, monkeypatch, groups) -> None:
    (whole,) = asked.fetch(query(asked, groups))
    asked.replies()
    monkeypatch.setattr(replay_client, "SMALLEST_PART_BYTES", 1_000)
    monkeypatch.setattr(replay_client, "PART_BYTES", 4_000)
    for each in asked.fetch(query(asked, groups), query(asked, groups)):
        assert sorted(each.rows()) == sorted(whole.rows())
    held = [size_of(replay.unpack(reply.tuples)) for reply in asked.replies()]
    assert max(held) <= 2_000  # two queries share what is requested at once
    assert (len(held) > 2) is (groups == ACCOUNTS)


def test_tuples_of_overlapping_ranges_are_in_an_answer_once(asked, monkeypatch) -> None:
    once = query(asked, ACCOUNTS)
    later = once.ranges.with_columns(pl.lit(1_000, pl.Int64).alias("from_ms"))
    monkeypatch.setattr(replay_client, "RANGES_BYTES", 1_500)
    (answer,) = asked.fetch(replace(once, ranges=pl.concat([once.ranges, later, once.ranges])))
    assert len(asked.requests()) > 1
    assert answer.height == GROUPS * 20


def test_a_query_takes_the_parts_as_they_arrive(asked, monkeypatch) -> None:
    monkeypatch.setattr(replay_client, "PART_BYTES", 6_000)
    taken = list[pl.DataFrame]()
    (answer,) = asked.fetch(query(asked, ACCOUNTS, taken.append))
    assert answer.is_empty()
    monkeypatch.setattr(replay_client, "SMALLEST_PART_BYTES", 1)
    (answer,) = asked.fetch(query(asked, ACCOUNTS, taken.append))
    assert answer.is_empty()
    whole, *parts = taken
    assert len(parts) > 5
    assert max(map(size_of, parts)) <= 6_000
    assert sorted(pl.concat(parts).rows()) == sorted(whole.rows())


def test_a_task_of_an_older_version_gets_its_answer_whole(asked: Asked) -> None:
    asked.fetch(query(asked, ACCOUNTS[:1]))
    (request,) = asked.requests()
    asked.replies()
    old = replace(request, number=7, ranges=replay.pack(query(asked, ACCOUNTS).ranges))
    without_the_last_field = replay.encode(replace(old, most_bytes=0), schema_id=1)[:-1]
    assert replay.decode_request(without_the_last_field) == replace(old, most_bytes=0)
    asked.driver.cluster.send(
        "parts.trades.requests", partition=0, key=None, value=without_the_last_field
    )
    for _ in range(3):
        next(asked.steps)
    (reply,) = asked.replies()
    assert (reply.number, replay.unpack(reply.tuples).height) == (7, GROUPS * 20)


def test_a_reply_of_a_sweeper_of_an_older_version_covers_all(asked: Asked) -> None:
    report = asked.driver.shared.view.of("trades.0")
    waiting = asked.client.fetch(
        [query(asked, ACCOUNTS)], task="trades.0", attempt=report.attempt, epoch=report.done
    )
    next(waiting)
    (request,) = asked.requests()
    asked.service.sweeper.follow()
    tuples = asked.service.sweeper.store.as_of(report.done, None)
    reply = Reply(request.requester, request.number, 1, 0, 1, None, replay.pack(tuples))
    place = {"partition": 0, "key": None}
    value = replay.encode(reply, schema_id=1)
    tail = 1 + 10  # -1 and 2^63 - 1
    asked.driver.cluster.send("parts.trades.replay", value=value[:-tail], **place)
    with pytest.raises(StopIteration) as stop:
        next(waiting)
    assert stop.value.value[0].height == tuples.height


@pytest.mark.parametrize("mode", ["upstream", "downstream"])
@pytest.mark.parametrize("each", [10, 40])
def test_what_an_aggregate_holds_of_a_storm_does_not_grow_with_it(monkeypatch, mode, each) -> None:
    held, tables, of_box = list[int](), [], scope_run._HistoryRequest._of_box
    limit = 4_000 if mode == "upstream" else 1_000

    def counted(self, replayed):
        held.extend(map(size_of, replayed))
        return of_box(self, replayed)

    for is_small in (False, True):
        with monkeypatch.context() as patch, Driver(network(mode), mode=mode) as driver:
            load(driver, each)
            patch.setattr(scope_run._HistoryRequest, "_of_box", counted)
            if is_small:
                patch.setattr(replay_client, "PART_BYTES", limit)
                patch.setattr(replay_client, "SMALLEST_PART_BYTES", 1)
            held.clear()
            rows = [trade(group, 3, 1_000 + group) for group in range(GROUPS)]
            driver.send("trades", [{"op": "replace", "after": row} for row in rows])
            driver.close_epoch()
            tables.append(sorted(driver.table("sums"), key=repr))
            assert (max(held) > limit) is not is_small
            assert (len(held) > 3) is is_small
    assert tables[0] == tables[1]
