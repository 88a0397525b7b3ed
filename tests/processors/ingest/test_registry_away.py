"""A schema registry that gives no answer: what is known goes on, what is not known waits for it."""

from collections.abc import Iterator
from typing import Any

import pytest

from errata import Network
from errata.observe.diagnosis import complaints
from errata.processors.ingest.owner_task import OwnerTask
from errata.testing import Driver
from errata.topics.registry import RegistryAwayError
from tests.processors.conftest import Clock
from tests.processors.envelopes.records import Registry, avro, record

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


@pytest.fixture
def driver(registry: Away) -> Iterator[Driver]:
    with Driver(network(rekey=False), live=registry) as running:
        yield running


def network(*, rekey: bool) -> Network:
    net = Network("two")
    for name in ("one", "other"):
        source = net.source(
            name, fields=FIELDS, identity=["key"], event_time="at", keep="1d", envelope="append",
            format="avro", rekey=rekey,
        )  # fmt: skip
        source.where(f"{name}_dear", "price > 5")
    return net


def send(driver: Driver, source: str, key: str, schema_id: int) -> None:
    schema = OLD if schema_id == 1001 else NEW
    driver.send_raw(source, avro(schema, {"key": key, "at": 1, "price": 7}, schema_id))


def keys(driver: Driver, arc: str) -> list[str]:
    return [row["key"] for row in driver.table(arc)]


def waiting(driver: Driver) -> list[str]:
    return [task.name for task in driver.tasks if task.waits_for]


def test_what_is_known_goes_on_and_what_is_not_waits_and_is_taken_in_later(
    driver: Driver, registry: Away, clock: Clock
) -> None:
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
    assert name == "ingest.one.0"
    (complaint,) = complaints(driver.shared.view, {}, now_ms=0)
    assert complaint.task == name
    assert complaint.reason == "it reads no input until the schema registry answers"
    assert driver.dead_letters() == []

    registry.is_away = False
    clock.pass_on()
    driver.close_epoch()
    assert keys(driver, "one_dear") == ["a", "b", "c", "d"]
    assert waiting(driver) == []
    assert complaints(driver.shared.view, {}, now_ms=0) == []
    assert driver.dead_letters() == []


def test_it_is_not_asked_at_every_step(driver: Driver, registry: Away, clock: Clock) -> None:
    registry.is_away = True
    send(driver, "one", "c", 1002)
    asked = registry.asked
    for _ in range(5):
        driver.close_epoch()
    assert registry.asked == asked + 1


def test_the_owner_of_identities_waits_too(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the records again, maybe in another process, which asks by itself."""
    registry, tries = Away(), []
    with Driver(network(rekey=True), live=registry) as driver:
        owner = next(task for task in driver.tasks if task.name == "one-owner.0")
        assert isinstance(owner, OwnerTask)
        decode = owner.intake.decode

        def away(*given: Any) -> Any:
            tries.append(given)
            raise RegistryAwayError("the registry gives no answer")

        monkeypatch.setattr(owner.intake, "decode", away)
        send(driver, "one", "a", 1001)
        send(driver, "other", "b", 1001)
        for _ in range(3):
            driver.close_epoch()
        assert len(tries) == 1
        assert waiting(driver) == ["one-owner.0"]
        assert (keys(driver, "one_dear"), keys(driver, "other_dear")) == ([], ["b"])

        monkeypatch.setattr(owner.intake, "decode", decode)
        clock.pass_on()
        driver.close_epoch()
        assert keys(driver, "one_dear") == ["a"]
        assert waiting(driver) == []
