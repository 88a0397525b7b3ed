"""A schema registry that gives no answer: what is known goes on, what is not known waits for it."""

from collections.abc import Iterator
from typing import Any

import pytest

from errata import Network
from errata.testing import Driver
from processors import ingest_task, owner_task
from processors.ingest_task import ASK_AGAIN_MS
from processors.task import INTERVAL_MS
from tests.processors.envelopes.records import Registry, avro, record
from topics.registry import RegistryAwayError

AT = {"type": "long", "logicalType": "timestamp-millis"}
TRADE = {"key": "string", "at": AT, "price": "long"}
OLD, NEW = record(TRADE), record(dict(reversed(TRADE.items())))
FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long"}


class Away(Registry):
    """A registry that can be away; what was asked for before is known, as with a server's."""

    def __init__(self) -> None:
        super().__init__({1001: OLD, 1002: NEW})
        self.is_away, self.asked = False, 0

    def schema(self, schema_id: int) -> Any:
        self.asked += 1
        if self.is_away:
            raise RegistryAwayError("the registry gives no answer")
        return super().schema(schema_id)


@pytest.fixture
def registry() -> Away:
    return Away()


@pytest.fixture(params=[False, True], ids=["by partition", "rekeyed"])
def driver(registry: Away, request: pytest.FixtureRequest) -> Iterator[Driver]:
    net = Network("two")
    for name in ("one", "other"):
        source = net.source(
            name, fields=FIELDS, identity=["key"], event_time="at", keep="1d", envelope="append",
            format="avro", rekey=request.param,
        )  # fmt: skip
        source.where(f"{name}_dear", "price > 5")
    with Driver(net, live=registry) as running:
        yield running


def send(driver: Driver, source: str, key: str, schema_id: int) -> None:
    schema = OLD if schema_id == 1001 else NEW
    driver.send_raw(source, avro(schema, {"key": key, "at": 1, "price": 7}, schema_id))


def keys(driver: Driver, arc: str) -> list[str]:
    return [row["key"] for row in driver.table(arc)]


def waiting(driver: Driver) -> list[str]:
    return [task.name for task in driver.tasks if task.waits]


def test_what_is_known_goes_on_and_what_is_not_waits_and_is_taken_in_later(
    driver: Driver, registry: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(owner_task, "monotonic", lambda: now_s[0])
    for source in ("one", "other"):
        send(driver, source, "a", 1001)
    driver.close_epoch()

    registry.is_away = True
    send(driver, "one", "b", 1001)
    driver.close_epoch()
    assert keys(driver, "one_dear") == ["a", "b"]  # by a schema that is known
    send(driver, "one", "c", 1002)
    send(driver, "one", "d", 1001)
    send(driver, "other", "e", 1001)
    driver.close_epoch()
    send(driver, "other", "f", 1001)
    driver.close_epoch()
    assert keys(driver, "one_dear") == ["a", "b"]
    assert keys(driver, "other_dear") == ["a", "e", "f"]  # whose frontier has moved on
    (name,) = waiting(driver)
    assert name in ("ingest.one.0", "one-owner.0")
    assert driver.dead_letters() == []

    registry.is_away = False
    driver.epoch += ASK_AGAIN_MS // INTERVAL_MS
    now_s[0] += owner_task.ASK_AGAIN_S
    driver.close_epoch()
    assert keys(driver, "one_dear") == ["a", "b", "c", "d"]
    assert waiting(driver) == []
    assert driver.dead_letters() == []


def test_it_is_not_asked_at_every_step(
    driver: Driver, registry: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_task, "monotonic", lambda: 10.0)
    registry.is_away = True
    send(driver, "one", "c", 1002)
    asked = registry.asked
    for _ in range(5):
        driver.close_epoch()
    assert registry.asked == asked + 1
    assert ingest_task.ASK_AGAIN_MS > 5 * INTERVAL_MS
