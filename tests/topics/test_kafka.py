"""What holds for Kafka alone: settings, faults, back-pressure, log starts."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Timer
from unittest.mock import Mock

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.cluster import (
    ClusterError,
    DoubtfulCommitError,
    LostOffsetError,
    MissingTopicError,
    MovingLeaderError,
    SilentClusterError,
    TopicPartition,
    catch_up,
)
from errata.topics.kafka import KafkaCluster
from errata.topics.kafka_reader import KafkaReader
from errata.topics.settings import TopicSpec, passing

NOBODY = "127.0.0.1:1"


def test_a_cluster_that_nobody_answers_for_is_named():
    with pytest.raises(ClusterError, match=f"no broker answers at {NOBODY} within 0.3 s") as error:
        KafkaCluster(
            {
                "bootstrap.servers": NOBODY,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": "hunter2",
            },
            reach_s=0.3,
        )
    assert "hunter2" not in str(error.value)


def test_what_the_client_library_logs_does_not_reach_the_terminal():
    program = (
        "from errata.topics.kafka import KafkaCluster\n"
        "try: KafkaCluster({'bootstrap.servers': '127.0.0.1:1'}, reach_s=0.5)\n"
        "except Exception as error: print(type(error).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("SilentClusterError\n", "")


def test_settings_without_a_server_are_refused():
    with pytest.raises(ClusterError, match=r"set bootstrap\.servers"):
        KafkaCluster({})


def test_a_setting_that_is_refused_is_told_without_secrets():
    settings = {
        "bootstrap.servers": NOBODY,
        "sasl.password": "hunter2",
        "security.protocol": "hunter2",
    }
    with pytest.raises(ClusterError, match="a Kafka setting is refused") as error:
        KafkaCluster(settings)
    assert "hunter2" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.kafka
def test_a_refused_login_ends_with_one_clear_error_and_no_secret(broker):
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "hunter2",
    }
    with pytest.raises(ClusterError, match=r"refuses this client.*check .*sasl\.") as error:
        KafkaCluster(broker.settings | sasl)
    assert "hunter2" not in str(error.value)


@pytest.mark.kafka
def test_a_cluster_shows_its_servers_and_no_secret(broker):
    cluster = KafkaCluster(broker.settings | {"sasl.password": "hunter2"})
    assert repr(cluster) == f"KafkaCluster(Connection('{broker.bootstrap_servers}'))"


@pytest.fixture
def source(broker, request) -> TopicPartition:
    create_topics(broker.settings, [TopicSpec(request.node.name, 1, passing())])
    return TopicPartition(request.node.name, 0)


@pytest.mark.kafka
def test_more_records_than_the_queue_holds_wait_and_all_arrive_in_order(broker, source):
    cluster = KafkaCluster(broker.settings | {"queue.buffering.max.messages": 50})
    life = cluster.transactions("pressed")
    life._queue_size = 10**9  # no waiting before the queue is full: BufferError, then
    values = [b"%d" % i for i in range(2000)]
    life.begin()
    life.produce(source.topic, partitions=[0] * 2000, keys=[None] * 2000, values=values)
    assert life.flush() == {source: range(2000)}
    life.commit()
    life.close()
    reader = cluster.reader({source: 0})
    found = [v for records in catch_up(cluster, reader, source) for v in records.values]
    reader.close()
    assert found == values


@pytest.mark.kafka
def test_positions_of_a_group_are_committed_with_the_transaction(broker, cluster, source):
    life = cluster.transactions("positions")
    life.begin()
    life.offsets("group", {source: 17})
    life.commit()
    life.close()
    asked = ConsumerGroupTopicPartitions("group", [Position(*source)])
    admin = AdminClient(broker.settings)
    answer = admin.list_consumer_group_offsets([asked])["group"].result()
    assert [position.offset for position in answer.topic_partitions] == [17]


@pytest.mark.kafka
def test_offset_0_is_the_start_of_the_log_and_any_other_that_is_gone_is_an_error(
    broker, cluster, source
):
    for value in (b"a", b"b", b"c"):
        cluster.send(source.topic, partition=0, key=None, value=value)
    reader = cluster.reader({source: 0})
    for _poll in range(100):
        if reader.position(source) == 3:
            break
        reader.poll(timeout_s=0.2)
    reader.close()
    cluster.delete_before(source, 2)
    assert cluster.offset_at(source, 0) == 2
    with pytest.raises(ClusterError, match="out of range"):
        cluster.delete_before(source, 4)
    reader = cluster.reader({source: 0})
    found = [v for records in catch_up(cluster, reader, source) for v in records.values]
    assert reader.known_end(source) == 3
    reader.close()
    assert reader.known_end(source) is None
    assert found == [b"c"]
    reader = cluster.reader({source: 1})
    with pytest.raises(LostOffsetError, match="from offset 1") as error:
        list(catch_up(cluster, reader, source))
    assert (error.value.source, error.value.offset) == (source, 1)
    reader.close()


class Starting:
    """A client whose first question goes to a broker that has just started."""

    def __init__(self, admin):
        self.admin, self.asked = admin, 0

    def __getattr__(self, name):
        return getattr(self.admin, name)

    def list_offsets(self, places, **options):
        self.asked += 1
        if self.asked > 1:
            return self.admin.list_offsets(places, **options)
        unknown = Future()
        unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return dict.fromkeys(places, unknown)


@pytest.mark.kafka
def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again(broker, source):
    cluster = KafkaCluster(broker.settings)
    starting = cluster._connection.admin = Starting(cluster._connection.admin)
    assert cluster.end(source) == 0
    assert starting.asked == 2
    starting.asked = 0
    with pytest.raises(MissingTopicError, match=f"no partition 9 of topic '{source.topic}'"):
        cluster.end(TopicPartition(source.topic, 9))


@pytest.mark.kafka
def test_a_broker_that_stands_still_is_waited_for_and_never_answered_for(tmp_path, monkeypatch):
    with EmbeddedBroker(tmp_path) as broker:
        create_topics(broker.settings, [TopicSpec("t", 1)])
        cluster, source = KafkaCluster(broker.settings), TopicPartition("t", 0)
        cluster.send("t", partition=0, key=None, value=b"a")
        cluster.flush()
        assert cluster.end(source) == 1
        group = broker._shim.pid
        os.killpg(group, signal.SIGSTOP)
        going_on = Timer(2.5, os.killpg, (group, signal.SIGCONT))
        try:
            with monkeypatch.context() as shorter:
                shorter.setattr("errata.topics.kafka.ELECTED_S", 0.5)
                with suppress(SilentClusterError):
                    while cluster.end(source):  # the signal may take a moment to reach all threads
                        pass
                with pytest.raises(SilentClusterError):
                    cluster.end(source)
            going_on.start()
            while True:
                with suppress(MovingLeaderError):  # to the controller it was away
                    assert cluster.offset_at(source, 0) == 0
                    assert cluster.end(source) == 1
                    break
        finally:
            going_on.cancel()
            os.killpg(group, signal.SIGCONT)
        cluster.close()


@pytest.mark.kafka
def test_a_group_without_a_coordinator_is_nothing_to_a_reader(cluster, source):
    event = Mock(topic=lambda: None, partition=lambda: None)
    event.error.return_value = KafkaError(KafkaError._RESOLVE, "FindCoordinator response error")
    reader = cluster.reader({source: 0})
    reader._handle(event)
    event.topic = lambda: source.topic
    with pytest.raises(ClusterError, match="FindCoordinator"):
        reader._handle(event)
    reader.close()


@pytest.mark.kafka
def test_a_rest_ends_with_what_arrives_for_any_reader_and_nothing_is_lost(broker, source):
    cluster = KafkaCluster(broker.settings)
    readers = [cluster.reader({source: 0}) for _ in range(2)]
    while cluster.rest(0.2):  # the end of the partition, for each
        for reader in readers:
            reader.poll()
    for value in (b"a", b"b", b"c"):
        cluster.send(source.topic, partition=0, key=None, value=value)
    cluster.flush()
    assert cluster.rest(30.0)
    while cluster.rest(0.2):  # what was not read does not end it again
        pass
    for reader in readers:
        found = []
        while reader.position(source) < 3:
            found += [v for records in reader.poll(timeout_s=1.0) for v in records.values]
        assert found == [b"a", b"b", b"c"]
        reader.close()
    assert not cluster.rest(0.0)
    cluster.close()


def kept(*waiting: Mock) -> KafkaReader:
    """A reader whose client has these messages of partition 0 of topic t, in order."""
    reader, queue = KafkaReader.__new__(KafkaReader), list(waiting)

    def consume(count: int, timeout_s: float) -> list[Mock]:
        taken, queue[:] = queue[:count], queue[count:]
        return taken

    reader._consumer, reader._connection = Mock(consume=consume), Mock()
    reader._sources, reader._positions = [TopicPartition("t", 0)], {TopicPartition("t", 0): 0}
    reader._next, reader._is_told = [], False
    return reader


def test_what_a_rest_has_found_is_told_once_and_read_first(monkeypatch):
    messages, taken = [Mock(error=lambda: None) for _ in range(3)], []
    monkeypatch.setattr("errata.topics.kafka_reader.Message", Mock(error=lambda m: m.error()))
    monkeypatch.setattr(
        "errata.topics.kafka_reader.Columns", lambda: Mock(add=taken.extend, offsets=[0])
    )
    reader = kept(*messages)
    assert [reader.has_more() for _ in range(3)] == [True, False, False]
    assert not reader.wait(9.0)  # it can't hold another one
    reader._take(50, {})
    assert taken == messages
    assert not reader.has_more()


@pytest.mark.kafka
def test_a_leader_that_moves_is_nothing_to_a_reader(cluster, source):
    event = Mock(topic=lambda: source.topic, partition=lambda: 0)
    reader = cluster.reader({source: 0})
    for code in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT):
        event.error.return_value = KafkaError(code)
        reader._handle(event)
    event.error.return_value = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ClusterError, match="lacks Read on topic"):
        reader._handle(event)
    reader.close()


@pytest.mark.kafka
def test_partitions_without_a_leader_are_named_if_they_stay_so(cluster, source, monkeypatch):
    monkeypatch.setattr("errata.topics.kafka.ELECTED_S", 0.0)
    moving = Future()
    moving.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
    metadata = Mock(topics={source.topic: Mock(partitions={0: Mock(leader=-1)})})
    monkeypatch.setattr(
        cluster._connection.admin, "list_offsets", lambda asked, **_: dict.fromkeys(asked, moving)
    )
    monkeypatch.setattr(cluster._connection.admin, "list_topics", lambda timeout: metadata)
    with pytest.raises(MovingLeaderError, match=f"partition 0 of topic '{source.topic}'") as error:
        cluster.end(source)
    assert error.value.places == (source,)


def client_threads() -> set[int]:
    """The threads of librdkafka's clients in this process."""
    found = set()
    for each in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if "rdk:" in (each / "comm").read_text():
                found.add(int(each.name))
    return found


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Whatever is in a reference cycle lives on."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.kafka
def test_a_closed_cluster_leaves_no_client_of_whoever_used_it(broker, source, uncollected):
    before = client_threads()
    cluster = KafkaCluster(broker.settings)
    users = [
        cluster.reader({source: 0}),
        cluster.transactions("closed"),
        cluster.membership("closed", source.topic, Mock()),
    ]
    cluster.send(source.topic, partition=0, key=None, value=b"x")
    assert len(client_threads() - before) > len(users)
    cluster.close()
    cluster.close()
    assert len(client_threads()) <= len(before)  # a client of another test may replace its own


@pytest.mark.kafka
def test_a_dropped_attempt_leaves_no_client(cluster, uncollected):
    before = client_threads()
    life = cluster.transactions("dropped")
    assert client_threads() - before
    del life
    assert len(client_threads()) <= len(before)  # a client of another test may replace its own


def test_a_cluster_that_is_not_reached_leaves_no_client(uncollected):
    before = client_threads()
    with pytest.raises(SilentClusterError) as kept:
        KafkaCluster({"bootstrap.servers": NOBODY}, reach_s=0.3)
    assert len(client_threads()) <= len(before)  # a client of another test may replace its own
    del kept


@pytest.mark.kafka
def test_a_broker_killed_loses_nothing_committed_and_ends_the_lives_that_saw_it(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        create_topics(broker.settings, [TopicSpec("t", 1, passing())])
        source = TopicPartition("t", 0)
        cluster = KafkaCluster(broker.settings)
        life = cluster.transactions("life")

        def write(value: bytes) -> None:
            life.begin()
            life.produce("t", partitions=[0], keys=[b"k"], values=[value])
            life.flush()
            life.commit()

        write(b"before")
        broker.kill()
        broker.start()
        with pytest.raises(DoubtfulCommitError, match="a connection broke"):
            write(b"doubted")
        life.close()
        life = cluster.transactions("life")
        write(b"after")
        reader = cluster.reader({source: 0})
        found = [v for records in catch_up(cluster, reader, source) for v in records.values]
        assert found == [b"before", b"after"]
        life.close()
        broker.kill()
        gone = KafkaCluster.__new__(KafkaCluster)  # a cluster that finds its broker gone for good
        gone.__dict__ |= cluster.__dict__
        gone._connection._reach_s = 0.5
        with pytest.raises(ClusterError, match="no broker answers at"):
            gone.partitions("t")
        reader.close()
