"""The three brokers go on without one of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic, sleep

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from errata.topics.java import JarsError, NoJavaError
from tests.faults.brokers import ThreeBrokers
from tests.faults.three_faults import RISKY, SAFE

pytestmark = pytest.mark.kafka

TOPIC = "records"
TIMEOUT_S = 40.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[ThreeBrokers]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(ThreeBrokers())
        except (NoJavaError, JarsError) as error:
            pytest.skip(str(error))
        admin = AdminClient(running.settings)
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(TIMEOUT_S)
        running.await_in_sync([TOPIC])
        yield running


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = monotonic() + TIMEOUT_S
    while not condition():
        assert monotonic() < deadline
        sleep(0.1)


def append(brokers: ThreeBrokers, count: int = 3) -> list[int]:
    """Append records, each acknowledged by all copies in sync; return their offsets."""
    offsets = []
    settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    producer = Producer(brokers.settings | settings)
    for _ in range(count):
        producer.produce(
            TOPIC, b"", on_delivery=lambda _, message: offsets.append(message.offset())
        )
        producer.flush(TIMEOUT_S)
    return offsets


def test_two_brokers_go_on_without_a_leader_that_was_killed(brokers):
    before, victim = brokers.end(TOPIC), brokers.leader(TOPIC)
    brokers.kill(victim)
    assert append(brokers) == [before, before + 1, before + 2]
    assert brokers.leader(TOPIC) != victim
    brokers.start(victim)
    brokers.await_in_sync([TOPIC])
    assert brokers.end(TOPIC) == before + 3


def test_two_brokers_go_on_without_a_leader_that_is_cut_off(brokers):
    before, victim = brokers.end(TOPIC), brokers.leader(TOPIC)
    with brokers.partition(victim):
        assert append(brokers) == [before, before + 1, before + 2]
        assert brokers.leader(TOPIC) != victim
        assert victim not in brokers.in_sync(TOPIC)
    brokers.await_in_sync([TOPIC])
    assert brokers.end(TOPIC) == before + 3


def test_two_brokers_go_on_without_a_leader_that_stands_still(brokers):
    before, victim = brokers.end(TOPIC), brokers.leader(TOPIC)
    brokers.stop_continue(victim, 4.0)
    assert append(brokers) == [before, before + 1, before + 2]
    brokers.await_in_sync([TOPIC])
    assert brokers.end(TOPIC) == before + 3


def test_a_leader_that_was_alone_in_sync_takes_its_records_with_it(brokers):
    brokers.alter([TOPIC], RISKY)
    before, victim = brokers.end(TOPIC), brokers.leader(TOPIC)
    with brokers.without_copies(victim):
        append(brokers)
        until(lambda: brokers.in_sync(TOPIC) == {victim})
        assert brokers.end(TOPIC) == before + 3
        brokers.kill(victim)
    until(lambda: brokers.leader(TOPIC) != victim)
    assert brokers.end(TOPIC) < before + 3
    brokers.alter([TOPIC], SAFE)
    brokers.start(victim)
    brokers.await_in_sync([TOPIC])
    assert brokers.end(TOPIC) < before + 3
