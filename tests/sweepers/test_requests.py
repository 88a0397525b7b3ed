"""Hostile records in the topic of replay requests: none ends, fills or blocks a sweeper."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import polars as pl
import pytest

from errata import Network, tumbling
from errata.processors.wire import replay
from errata.processors.wire.replay import Request, Requester, pack, unpack
from errata.sweepers import requests as module
from errata.sweepers.requests import EXPIRE_S, MOST_EARLY, MOST_PENDING
from errata.sweepers.sweeper import Service, Sweeper
from errata.testing import Driver
from errata.topics.cluster import TopicPartition

MINUTE = 60_000
RANGES = pl.DataFrame({"from_ms": [0], "to_ms": [10 * MINUTE]})
PLACE = "fair.trades.replay"


class Served:
    """A network with one sweeper, and what comes back over the topic of replies."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver, self.shared, self.now_s = driver, driver.shared, 0.0
        sweeper = Sweeper(driver.shared, "trades", partition=0, folder=folder)
        self.service = Service(driver.shared, sweeper)
        self.service.requests._clock_s = lambda: self.now_s
        self.steps = self.service.steps()
        self.replies = driver.cluster.reader({TopicPartition(PLACE, 0): 0})
        self.task = "trades.0"
        report = driver.shared.view.of(self.task)
        self.request = Request(
            plan=driver.plan.fingerprint,
            requester=Requester(self.task, report.attempt, report.done),
            number=1,
            as_of=report.done,
            partition=0,
            reply_topic=PLACE,
            reply_partition=0,
            ranges=pack(RANGES),
        )

    def send(self, *requests: Request | bytes) -> None:
        for each in requests:
            value = each if isinstance(each, bytes) else replay.encode(each, schema_id=1)
            self.driver.cluster.send("fair.trades.requests", partition=0, key=None, value=value)

    def step(self, times: int = 3) -> list[int]:
        """Let the sweeper work; return the numbers of the requests that it replied to."""
        for _ in range(times):
            next(self.steps)
        values = [value for records in self.replies.poll() for value in records.values]
        return [reply.number for value in values if (reply := replay.decode_reply(value))]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    net = Network("fair")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=["key"], window=tumbling("10m"), total="sum(price)")
    with Driver(net, mode="upstream") as driver:
        for minute in (1, 15, 40):
            row = {"key": f"k{minute}", "at": minute * MINUTE, "price": 1}
            driver.send("trades", {"op": "insert", "after": row})
            driver.close_epoch()
        yield Served(driver, tmp_path / "sweeper")


def test_an_honest_request_gets_its_tuples(served: Served) -> None:
    served.send(served.request)
    assert served.step() == [1]


def frame(**columns: list[object]) -> bytes:
    return pack(pl.DataFrame(columns))


@pytest.mark.parametrize(
    "change",
    [
        {"ranges": b"garbage"},
        {"ranges": b""},
        {"ranges": pack(RANGES)[:-40]},
        {"ranges": frame(from_ms=[0])},
        {"ranges": frame(from_ms=[0], to_ms=["9"])},
        {"ranges": frame(from_ms=[0], to_ms=[None])},
        {"ranges": frame(from_ms=[0], to_ms=[9], unknown=[1])},
        {"ranges": frame(from_ms=[0], to_ms=[9], key=[5])},
        {"ranges": frame(from_ms=[0], to_ms=[9], key=[[[1]]])},
        {"reply_topic": "of.somebody.else"},
        {"reply_topic": "no topic / at all"},
        {"reply_topic": ""},
        {"reply_partition": 7},
        {"reply_partition": -1},
        {"partition": 3},
        {"requester": Requester("nobody.0", 1, 1)},
        {"requester": Requester("", 1, 1)},
        {"requester": Requester("ingest.trades.0", 1, 1)},
    ],
)
def test_a_request_that_no_task_can_have_sent_is_ignored_and_counted(served, change) -> None:
    served.send(replace(served.request, **change), replace(served.request, number=2))
    assert served.step() == [2]
    assert served.shared.meter.ignored["trades"] == 1


@pytest.mark.parametrize("as_of", [-1, -(2**63), 2**63 - 1])
def test_an_epoch_that_nobody_can_ask_for_blocks_nobody(served: Served, as_of: int) -> None:
    served.send(replace(served.request, as_of=as_of), replace(served.request, number=2))
    assert 2 in served.step()


def test_random_bytes_are_ignored(served: Served) -> None:
    rng = Random(3)
    good = replay.encode(served.request, schema_id=1)
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(rng.choice([1, 2, 8])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        served.send(bytes(damaged), rng.randbytes(rng.randrange(300)))
    served.step()
    served.send(replace(served.request, number=7_654_321))
    assert 7_654_321 in served.step(20)


def test_a_flood_for_a_far_epoch_is_bounded_and_delays_nobody(served: Served) -> None:
    far = replace(served.request, as_of=2**40)
    served.send(*(replace(far, number=n) for n in range(5_000)), replace(far, number=9_999))
    served.send(replace(served.request, number=10_000))
    assert served.step() == [10_000]
    assert len(served.service.requests) == MOST_EARLY
    served.now_s += EXPIRE_S + 1
    served.step()
    assert len(served.service.requests) == 0


def test_a_flood_in_the_name_of_one_task_is_bounded(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(served.service.sweeper, "answer", lambda *_, **__: None)  # it lags
    served.send(*(replace(served.request, number=n) for n in range(5_000)))
    served.step()
    assert len(served.service.requests) == MOST_PENDING
    monkeypatch.setattr(module, "MOST_BYTES", 10 * len(served.request.ranges))
    served.send(replace(served.request, number=9_999))
    served.step()
    assert len(served.service.requests) == 10
    monkeypatch.undo()
    assert 9_999 in served.step()


def test_a_request_that_is_sent_again_is_answered_once(served: Served) -> None:
    served.send(served.request, served.request, served.request)
    assert served.step() == [1]


def test_requests_of_fenced_attempts_are_dropped(served: Served) -> None:
    older = replace(served.request.requester, attempt=served.request.requester.attempt - 1)
    served.send(replace(served.request, requester=older))
    assert served.step() == []
    assert len(served.service.requests) == 0


def test_tasks_take_turns(served: Served) -> None:
    queue = served.service.requests
    queue._tasks["trades.1"] = type(queue._tasks["trades.0"])()
    for task, numbers in (("trades.0", range(5)), ("trades.1", range(10, 12))):
        for number in numbers:
            requester = replace(served.request.requester, task=task)
            request = replace(served.request, requester=requester, number=number)
            queue._tasks[task].add(module.PendingRequest(request, RANGES, 0.0))
    attempts = {"trades.1": served.shared.view.of("trades.0")}
    served.shared.view.reports |= attempts
    assert [pending.request.number for pending in queue.due()] == [0, 10, 1, 11, 2, 3, 4]


def test_a_block_of_foreign_bytes_is_refused_or_a_frame() -> None:
    """Arrow's file format, damaged anywhere: polars alone panics on some, or ends the process."""
    rng, good = Random(5), pack(pl.DataFrame({"a": [1, 2], "s": ["x", "a longer text than 12"]}))
    for _ in range(2_000):
        damaged = bytearray(good)
        for _ in range(rng.choice([1, 2, 8])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            unpack(bytes(damaged)).to_dicts()
        except replay.BlockError:
            continue


def test_what_a_sweeper_has_ignored_is_in_its_report(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    sweeper = served.service.sweeper
    served.step()
    served.send(b"garbage", replace(served.request, requester=Requester("nobody.0", 1, 1)))
    served.step()
    sweeper.reported_ms = 0
    served.step()
    served.shared.view.poll()
    assert served.shared.view.of(sweeper.name).counts == {"foreign": 2}
    told = "partition 0 and offset 0: a record that is no request"
    assert any(told in message for message in caplog.messages)


def test_what_lies_in_its_arc_and_is_no_revision_is_in_its_report(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    sweeper = served.service.sweeper
    served.step()
    place = sweeper.input.place
    served.driver.cluster.send(place.topic, partition=0, key=b"k", value=b"garbage")
    served.driver.cluster.send(place.topic, partition=0, key=b"k", value=None)
    offset = served.driver.cluster.end(place) - 2
    served.step()
    sweeper.reported_ms = 0
    served.step()
    served.shared.view.poll()
    assert served.shared.view.of(sweeper.name).counts == {"foreign": 1}
    told = f"partition 0 and offset {offset} of topic {place.topic}: no revision of arc 'trades'"
    assert any(told in message for message in caplog.messages)
