"""What the proxy does to frames, and that a transactional producer outlives all of it."""

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from threading import Thread
from time import monotonic, sleep
from typing import BinaryIO

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from errata.topics.java import JarsError, NoJavaError
from tests.faults.proxy import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOADING,
    REQUEST_TIMED_OUT,
    FrameProxy,
    Rule,
    proxied_broker,
)

ACTIONS = ["cut", "drop", "error", "hold", "repeat"]
APIS = ["InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit"]
APIS += ["EndTxn"]
TOPIC, INPUT = "records", "input"
RECORDS = 3
TIMEOUT_S = 20.0
INVALID_PRODUCER_EPOCH = 47
QUICK = {
    "socket.timeout.ms": 600,  # gives up on a dead connection
    "request.timeout.ms": 600,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "log_level": 0,
}


@pytest.fixture(scope="module")
def through() -> Iterator[FrameProxy]:
    try:
        running = proxied_broker()
        broker, proxy = running.__enter__()
    except (NoJavaError, JarsError) as error:
        pytest.skip(str(error))
    try:
        admin = AdminClient(broker.settings)
        for answer in admin.create_topics([NewTopic(TOPIC, 2), NewTopic(INPUT, 1)]).values():
            answer.result(TIMEOUT_S)
        yield proxy
    finally:
        running.__exit__(None, None, None)


@pytest.fixture
def proxy(through: FrameProxy) -> Iterator[FrameProxy]:
    through.counts.clear()
    yield through
    through.clear()


@dataclass
class Outcome:
    """What became of the transactions of one producer."""

    name: str
    committed: list[int] = field(default_factory=list)
    failed: dict[int, KafkaError] = field(default_factory=dict)


def transactions(proxy: FrameProxy, *, count: int = 2) -> Outcome:
    """Run transactions, each of which writes to two partitions and commits a position."""
    outcome = Outcome(uuid.uuid4().hex)
    producer: Producer | None = None
    for number in range(count):
        try:
            if producer is None:
                own = {"transactional.id": outcome.name, "linger.ms": 0, "message.timeout.ms": 9000}
                producer = Producer(proxy.settings | QUICK | own | {"transaction.timeout.ms": 9000})
                producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            for record in range(RECORDS):
                producer.produce(TOPIC, f"{outcome.name} {number} {record}", partition=record % 2)
            producer.flush(TIMEOUT_S)
            consumer = Consumer(proxy.settings | {"group.id": outcome.name, "log_level": 0})
            positions = [Position(INPUT, 0, number + 1)]
            group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, group, TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            outcome.committed.append(number)
        except KafkaException as error:
            outcome.failed[number] = error.args[0]
            producer = None  # the next one fences it, which aborts what it left open
    return outcome


def read(proxy: FrameProxy, name: str, **settings: str | int) -> list[tuple[int, int]]:
    """Return (transaction, record) of the committed records of a producer, in any order."""
    own = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer(proxy.settings | QUICK | {"fetch.wait.max.ms": 100} | own | settings)
    consumer.assign([Position(TOPIC, partition, 0) for partition in range(2)])
    records, at_end, deadline = [], set(), monotonic() + TIMEOUT_S
    while len(at_end) < 2 and monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            owner, number, record = message.value().decode().split()
            if owner == name:
                records.append((int(number), int(record)))
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
    assert len(at_end) == 2, "the end was not reached"
    consumer.close()
    return sorted(records)


def await_that(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + TIMEOUT_S
    while not condition():
        assert monotonic() < deadline
        sleep(0.005)


def all_of(transactions: list[int]) -> list[tuple[int, int]]:
    return [(number, record) for number in transactions for record in range(RECORDS)]


def position(proxy: FrameProxy, name: str) -> int:
    consumer = Consumer(proxy.settings | {"group.id": name})
    committed = consumer.committed([Position(INPUT, 0)], TIMEOUT_S)[0].offset
    consumer.close()
    return committed


def check(proxy: FrameProxy, outcome: Outcome) -> None:
    """What was committed is there once and whole; what failed is there once and whole, or not."""
    deadline = monotonic() + TIMEOUT_S
    while True:  # the ends of a transaction reach one partition after the other
        there = read(proxy, outcome.name)
        doubtful = [number for number in outcome.failed if (number, 0) in there]
        whole = sorted(outcome.committed + doubtful)
        if there == all_of(whole) or monotonic() > deadline:
            break
    assert there == all_of(whole)
    assert position(proxy, outcome.name) == whole[-1] + 1


EVERY = [(action, where) for action in ACTIONS for where in ("before", "after")]
CASES = [
    *((api, *how) for api in ("Produce", "EndTxn") for how in EVERY if how[0] != "hold"),
    *((api, "error", where) for api in APIS for where in ("before", "after")),
]


@pytest.mark.kafka
@pytest.mark.parametrize(("api", "action", "where"), dict.fromkeys(CASES))
def test_transactions_outlive_a_fault_of_one_request(proxy, api, action, where):
    proxy.plan(Rule(api, action, where))
    outcome = transactions(proxy)
    assert proxy.counts == {(api, action, where): 1}
    assert outcome.committed == [0, 1]
    check(proxy, outcome)


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("Produce", REQUEST_TIMED_OUT),
        ("AddPartitionsToTxn", CONCURRENT_TRANSACTIONS),
        ("TxnOffsetCommit", COORDINATOR_LOADING),
        ("EndTxn", CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_client_tries_again_after_the_error_that_it_is_sent(proxy, api, code):
    proxy.plan(Rule(api, "error", "after", count=2, error_code=code))
    outcome = transactions(proxy)
    assert proxy.counts == {(api, "error", "after"): 2}
    assert outcome.committed == [0, 1]
    check(proxy, outcome)


@pytest.mark.kafka
def test_an_error_that_is_final_fails_the_transaction_that_the_broker_has_done(proxy):
    proxy.plan(Rule("EndTxn", "error", "after", error_code=INVALID_PRODUCER_EPOCH))
    outcome = transactions(proxy)
    assert outcome.committed == [1]
    assert read(proxy, outcome.name) == all_of([0, 1])


@pytest.mark.kafka
def test_an_identity_that_was_requested_twice_fences_the_producer(proxy):
    proxy.plan(Rule("InitProducerId", "repeat", "after"))
    outcome = transactions(proxy)
    assert outcome.failed[0].code() == KafkaError._FENCED
    check(proxy, outcome)


@pytest.mark.kafka
def test_a_commit_that_arrives_late_exposes_the_transaction_that_is_open_then(proxy):
    repeated = ("EndTxn", "repeat", "after")
    for hold_s in (0.5, 2.0, 8.0):
        proxy.counts.clear()
        proxy.plan(Rule(*repeated, hold_s=hold_s))
        name = uuid.uuid4().hex
        producer = Producer(proxy.settings | {"transactional.id": name, "log_level": 0})
        producer.init_transactions(TIMEOUT_S)
        for number in range(2):
            producer.begin_transaction()
            producer.produce(TOPIC, f"{name} {number} 0", partition=0)
            producer.flush(TIMEOUT_S)
            if number == 0:
                producer.commit_transaction(TIMEOUT_S)
        in_time = proxy.counts[repeated] == 0
        await_that(lambda: proxy.counts[repeated] == 1)
        if in_time:  # a slow machine may have let it arrive between the two transactions
            await_that(lambda name=name: read(proxy, name) == [(0, 0), (1, 0)])
            return
    raise AssertionError("no commit arrived late enough")


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("action", "where"),
    [("cut", "after"), ("drop", "after"), ("error", "before"), ("error", "after")],
)
def test_a_reader_outlives_faults_of_its_fetches(proxy, action, where):
    outcome = transactions(proxy)
    proxy.plan(Rule("Fetch", action, where, count=2))
    assert read(proxy, outcome.name) == all_of(outcome.committed)
    assert proxy.counts == {("Fetch", action, where): 2}


class Echo:
    """A stand-in for a broker: it keeps what it is sent, and answers with what follows a header."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes up what accepts
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                Thread(target=self._answer, args=self._server.accept()[:1], daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), client, client.makefile("rb") as stream:
            while frame := received(stream):
                self.received.append(frame[4:])
                client.sendall(len(frame[4:]).to_bytes(4) + frame[4:])


def received(stream: BinaryIO) -> bytes:
    """Return the next frame without its length, or nothing if the connection is closed."""
    with suppress(ConnectionResetError):
        return stream.read(int.from_bytes(stream.read(4)))
    return b""


METADATA, HEARTBEAT, END_TXN = 3, 12, 26


class Peer:
    """A client of the echo, through a proxy."""

    def __init__(self, proxy: FrameProxy) -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port))
        self.socket.settimeout(TIMEOUT_S)
        self._stream = self.socket.makefile("rb")

    def send(self, text: str, *, api: int = METADATA) -> None:
        frame = api.to_bytes(2) + bytes(2) + text.encode()
        self.socket.sendall(len(frame).to_bytes(4) + frame)

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def answer(self) -> str:
        """Return the next answer; nothing if the connection was closed."""
        return received(self._stream).decode()


@pytest.fixture
def echo() -> Iterator[Echo]:
    running = Echo()
    yield running
    running.close()


@pytest.fixture
def before_echo(echo: Echo) -> Iterator[FrameProxy]:
    with FrameProxy(lambda: echo.address) as proxy:
        yield proxy


@pytest.fixture
def connect() -> Iterator[Callable[[FrameProxy], Peer]]:
    with ExitStack() as opened:

        def connected(proxy: FrameProxy) -> Peer:
            peer = Peer(proxy)
            opened.callback(peer.close)
            return peer

        yield connected


def test_frames_pass_both_ways_in_order(connect, before_echo, echo):
    peer = connect(before_echo)
    sent = [f"{number:04}{'x' * number * 1000}" for number in range(200)]
    for text in sent:
        peer.send(text)
    assert [peer.answer() for _ in sent] == sent
    assert before_echo.counts == {}


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_request_that_is_held_holds_up_the_next_ones_of_its_connection_alone(
    connect, before_echo, echo, where
):
    before_echo.plan(Rule("Metadata", "hold", where, hold_s=0.3))
    peer, other = connect(before_echo), connect(before_echo)
    began = monotonic()
    peer.send("0001")
    await_that(lambda: before_echo.counts["Metadata", "hold", where] == 1)
    peer.send("0002")
    other.send("0003")
    assert other.answer() == "0003"
    assert [peer.answer(), peer.answer()] == ["0001", "0002"]
    assert monotonic() - began >= 0.3


@pytest.mark.parametrize("where", ["before", "after"])
def test_after_a_drop_the_connection_is_dead_but_open(connect, before_echo, echo, where):
    before_echo.plan(Rule("Metadata", "drop", where))
    peer, other = connect(before_echo), connect(before_echo)
    peer.send("0001", api=HEARTBEAT)
    assert peer.answer() == "0001"
    peer.send("0002")
    await_that(lambda: before_echo.counts["Metadata", "drop", where] == 1)
    peer.send("0003", api=HEARTBEAT)
    other.send("0004")
    assert other.answer() == "0004"
    peer.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        peer.answer()
    assert echo.received == [b"0001", *([b"0002"] if where == "after" else []), b"0004"]


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_cut_closes_the_connection_before_or_after_the_broker_has_the_request(
    connect, before_echo, echo, where
):
    before_echo.plan(Rule("*", "cut", where))
    peer = connect(before_echo)
    peer.send("0001")
    assert peer.answer() == ""
    assert echo.received == ([b"0001"] if where == "after" else [])
    assert before_echo.counts == {("Metadata", "cut", where): 1}


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_repeated_request_reaches_the_broker_twice_and_is_answered_once(
    connect, before_echo, echo, where
):
    before_echo.plan(Rule("Metadata", "repeat", where))
    peer = connect(before_echo)
    peer.send("0001")
    peer.send("0002")
    assert [peer.answer(), peer.answer()] == ["0001", "0002"]
    assert sorted(echo.received) == [b"0001", b"0001", b"0002"]


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_error_is_answered_without_the_broker_or_once_it_has_done_the_request(
    connect, before_echo, echo, where
):
    before_echo.plan(Rule("EndTxn", "error", where, error_code=CONCURRENT_TRANSACTIONS))
    peer = connect(before_echo)
    peer.send("0001")
    peer.send("0002", api=END_TXN)
    peer.send("0003")
    throttled_ms = "\0" * 4
    error = f"\0{CONCURRENT_TRANSACTIONS:c}"
    assert [peer.answer() for _ in range(3)] == ["0001", f"0002{throttled_ms}{error}", "0003"]
    assert echo.received == [b"0001", *([b"0002"] if where == "after" else []), b"0003"]


def test_a_late_repetition_arrives_after_the_answer(connect, before_echo, echo):
    before_echo.plan(Rule("Metadata", "repeat", "after", hold_s=0.2))
    peer = connect(before_echo)
    peer.send("0001")
    assert peer.answer() == "0001"
    assert echo.received == [b"0001"]
    await_that(lambda: before_echo.counts["Metadata", "repeat", "after"] == 1)
    assert echo.received == [b"0001", b"0001"]


def test_a_rule_applies_to_so_many_requests_of_its_api_until_it_is_cleared(connect, before_echo):
    before_echo.plan(Rule("Metadata", "hold", "after", count=2, hold_s=0.001))
    before_echo.plan(Rule("Heartbeat", "hold", "before", count=9, hold_s=0.001))
    peer = connect(before_echo)
    for api in (METADATA, HEARTBEAT, METADATA, METADATA):
        peer.send("0001", api=api)
        peer.answer()
    before_echo.clear()
    peer.send("0001", api=HEARTBEAT)
    peer.answer()
    assert before_echo.counts == {
        ("Metadata", "hold", "after"): 2,
        ("Heartbeat", "hold", "before"): 1,
    }


def test_chance_harms_a_part_of_the_requests_and_the_seed_says_which(connect, echo):
    def harmed(seed: int) -> list[int]:
        with FrameProxy(echo.address, seed=seed) as proxy:
            proxy.plan(Rule("*", "hold", "after", count=99, hold_s=0.0001, probability=0.5))
            peer, so_far = connect(proxy), []
            for _ in range(30):
                peer.send("0001")
                peer.answer()
                so_far.append(proxy.counts.total())
            return so_far

    assert harmed(1) == harmed(1) != harmed(2)
    assert 0 < harmed(1)[-1] < 30


def test_a_client_that_is_isolated_is_cut_off_and_kept_out(connect, before_echo):
    peer, other = connect(before_echo), connect(before_echo)
    for each in (peer, other):
        each.send("0001")
        assert each.answer() == "0001"
    port = peer.socket.getsockname()[1]
    before_echo.isolate(lambda theirs: theirs == port)
    assert peer.answer() == ""
    other.send("0002")
    assert other.answer() == "0002"
    before_echo.isolate()
    assert other.answer() == ""
    assert connect(before_echo).answer() == ""
    before_echo.rejoin()
    peer = connect(before_echo)
    peer.send("0003")
    assert peer.answer() == "0003"


def test_a_client_sees_that_the_broker_is_gone(connect, before_echo, echo):
    echo.close()
    assert connect(before_echo).answer() == ""


@pytest.mark.parametrize(
    "rule",
    [
        ("Produced", "cut", "before"),
        ("Metadata", "error", "before"),
        ("Produce", "hold", "before"),
    ],
)
def test_a_rule_that_can_harm_nothing_is_refused(rule):
    with pytest.raises(ValueError, match=r"rule that holds|name of a Kafka API|can be crafted"):
        Rule(*rule)
