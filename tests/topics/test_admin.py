"""Making topics, refusing those that would break a law, and waiting for brokers."""

import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Thread, Timer
from time import monotonic

import pytest
from tenacity import stop_after_delay, wait_none

from errata.topics import admin
from errata.topics.admin import (
    TopicSettingsError,
    await_brokers,
    create_topics,
    faults,
    topic_settings,
)
from errata.topics.client import Connection, TooFewBrokersError
from errata.topics.cluster import ClusterError, MissingTopicError, SilentClusterError
from errata.topics.kafka import KafkaCluster
from errata.topics.refused import DESCRIBE_CONFIGS, READ, TOPIC, Right
from errata.topics.settings import (
    DAY_MS,
    FOREVER_MS,
    TopicSpec,
    compacted,
    connection_point,
    dead_letters,
    passing,
    short,
)
from tests.topics.test_client import HOST, StartingBroker, started

SPEC = TopicSpec("tape.trades", 2, connection_point(retention_ms=10 * DAY_MS))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "delete"),
        ("min.compaction.lag.ms", str(DAY_MS - 1)),
        ("retention.ms", str(10 * DAY_MS - 1)),
        ("retention.bytes", "1000000"),
        ("delete.retention.ms", "0"),
    ],
)
def test_a_topic_that_forgets_sooner_than_needed_has_one_fault(key, value):
    (fault,) = faults(SPEC, partitions=2, config=SPEC.config | {key: value})
    assert (fault.topic, fault.what, fault.actual) == ("tape.trades", key, value)
    assert f"needs {key} {SPEC.config[key]}, but has {value}; alter it:" in str(fault)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "delete,compact"),
        ("min.compaction.lag.ms", str(2 * DAY_MS)),
        ("retention.ms", str(11 * DAY_MS)),
        ("retention.ms", "-1"),
        ("segment.ms", "1"),
    ],
)
def test_a_topic_that_keeps_more_than_needed_has_none(key, value):
    assert faults(SPEC, partitions=2, config=SPEC.config | {key: value}) == []


def test_a_topic_with_other_partitions_has_a_fault():
    (fault,) = faults(SPEC, partitions=3, config=SPEC.config)
    assert (fault.need, fault.actual) == ("2", "3")


def test_what_is_to_be_kept_for_ever_has_no_retention():
    assert connection_point(retention_ms=FOREVER_MS)["retention.ms"] == "-1"
    assert dead_letters()["retention.ms"] == "-1"
    assert connection_point(retention_ms=FOREVER_MS - 1)["retention.ms"] == str(FOREVER_MS - 1)
    config = connection_point(retention_ms=FOREVER_MS)
    spec = TopicSpec("t", 1, config)
    assert len(faults(spec, partitions=1, config=config | {"retention.ms": "1"})) == 1


@pytest.mark.kafka
def test_topics_are_made_once_with_their_settings_and_again_is_no_error(broker):
    kinds = {
        "passing": passing(),
        "point": connection_point(retention_ms=DAY_MS),
        "compacted": compacted(),
        "short": short(),
        "letters": dead_letters(),
    }
    wanted = [TopicSpec(f"made.{kind}", 2, config) for kind, config in kinds.items()]
    for _again in range(2):
        create_topics(broker.settings, wanted)
    cluster = KafkaCluster(broker.settings)
    assert [cluster.partitions(spec.name) for spec in wanted] == [2] * len(wanted)


@pytest.mark.kafka
def test_processes_that_make_the_same_topics_at_once_all_succeed(broker):
    wanted = [TopicSpec(f"at-once.{i}", 1, passing()) for i in range(5)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: create_topics(broker.settings, wanted), range(4)))


def unhearing(monkeypatch, operation, times):
    """Let a broker not know of a topic when it is first asked for it, as one of three does when
    another has just created it; return what is left of these times.
    """
    real, unheard = Connection.wait_for, iter([True] * times)

    def late(self, what, answer, *, right=None, limit_s=None):
        if right is not None and right.operation == operation and next(unheard, None):
            raise MissingTopicError(f"no {what}")
        return real(self, what, answer, right=right, limit_s=limit_s)

    monkeypatch.setattr(Connection, "wait_for", late)
    return unheard


@pytest.mark.kafka
def test_a_process_starts_though_a_broker_has_yet_to_hear_of_its_topic(broker, monkeypatch):
    create_topics(broker.settings, [TopicSpec("unheard-at-start", 1)])
    monkeypatch.setattr(admin.require.retry, "wait", wait_none())
    cluster, unheard = KafkaCluster(broker.settings), unhearing(monkeypatch, READ, 1)
    cluster.require([Right(READ, TOPIC, "unheard-at-start")])
    assert next(unheard, None) is None
    with pytest.raises(MissingTopicError, match="no topic 'never-there'"):
        cluster.require([Right(READ, TOPIC, "never-there")])
    cluster.close()


@pytest.mark.kafka
def test_a_broker_may_be_asked_that_has_yet_to_hear_of_a_topic(broker, monkeypatch):
    unheard = unhearing(monkeypatch, DESCRIBE_CONFIGS, 3)
    create_topics(broker.settings, [TopicSpec("unheard-of", 1, passing())])
    assert next(unheard, None) is None
    monkeypatch.setattr(admin.describe_configs.retry, "stop", stop_after_delay(0.2))
    with pytest.raises(MissingTopicError, match="no topic 'never-heard-of'"):
        topic_settings(broker.settings, ["never-heard-of"])


@pytest.mark.kafka
def test_unsuitable_topics_are_refused_with_a_line_a_fault_and_nothing_is_made(broker):
    create_topics(broker.settings, [TopicSpec("refused.old", 1, passing())])
    wanted = [
        TopicSpec("refused.old", 2, connection_point(retention_ms=FOREVER_MS)),
        TopicSpec("refused.new", 1),
    ]
    with pytest.raises(TopicSettingsError) as refused:
        create_topics(broker.settings, wanted)
    assert {fault.what for fault in refused.value.faults} == {
        "partitions",
        "cleanup.policy",
        "retention.ms",
        "min.compaction.lag.ms",
    }
    assert len(str(refused.value).splitlines()) == 4
    with pytest.raises(ClusterError, match=r"refused\.new"):
        KafkaCluster(broker.settings).partitions("refused.new")


@pytest.mark.kafka
def test_what_the_broker_refuses_is_told(broker):
    with pytest.raises(ClusterError, match=r"topic 'odd'.*cleanup"):
        create_topics(broker.settings, [TopicSpec("odd", 1, {"cleanup.policy": "burn"})])


@pytest.mark.kafka
def test_brokers_that_a_topics_copies_need_are_waited_for_and_then_missed(broker):
    began = monotonic()
    with pytest.raises(TooFewBrokersError, match=r"topic 'copied'.* 2 .*start more brokers"):
        create_topics(broker.settings, [TopicSpec("copied", 1)], replication=2, limit_s=1.0)
    assert monotonic() - began > 1.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "AT_ONCE_S", 0.3)


@pytest.mark.usefixtures("impatient")
def test_brokers_that_are_there_are_not_waited_for() -> None:
    said: list[str] = []
    with started(True) as broker:
        await_brokers(broker.settings, limit_s=10.0, say=said.append)
    assert said == []


@pytest.mark.usefixtures("impatient")
def test_brokers_that_come_later_are_waited_for_and_that_is_said_once() -> None:
    said: list[str] = []
    late = StartingBroker(True)
    late.server.close()  # its port is free until it comes

    def come() -> None:
        late.server = socket.create_server((HOST, late.port))
        late.accept()

    timer = Timer(1.0, lambda: Thread(target=come, daemon=True).start())
    timer.start()
    try:
        settings = {"bootstrap.servers": f"{HOST}:{late.port}", "reconnect.backoff.ms": 20}
        await_brokers(settings, limit_s=30.0, say=said.append)
    finally:
        timer.join()
        late.server.close()
    assert said == [f"no broker answers at {HOST}:{late.port} yet; waiting for at most 30 s"]


@pytest.mark.usefixtures("impatient")
def test_brokers_that_never_come_are_given_up() -> None:
    said: list[str] = []
    with pytest.raises(SilentClusterError, match=r"no broker answers at 127.0.0.1:1 within 0.6 s"):
        await_brokers({"bootstrap.servers": "127.0.0.1:1"}, limit_s=0.6, say=said.append)
    assert len(said) == 1
