"""Kafka's frames, as far as a proxy must know them: headers of requests, and answers with an error.

An answer with an error is made from the request alone: it names the topics and partitions of the
request, and says of each that it failed. The layouts are those of Kafka 4 (its message schemas),
from the oldest version that it accepts to the newest; of AddPartitionsToTxn up to 3, which clients
use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

APIS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    32: "DescribeConfigs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    42: "DeleteGroups",
    44: "IncrementalAlterConfigs",
    60: "DescribeCluster",
    75: "DescribeTopicPartitions",
}
"""The names of the APIs that a client of Errata may use, by key."""

CRAFTED = {
    "Produce": (3, 13),
    "Fetch": (4, 18),
    "InitProducerId": (0, 5),
    "AddPartitionsToTxn": (0, 3),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "TxnOffsetCommit": (0, 5),
}
"""The APIs whose answers can be made, with the oldest and the newest version."""

_FLEXIBLE = {
    "Produce": 9,
    "Fetch": 12,
    "InitProducerId": 2,
    "AddPartitionsToTxn": 3,
    "AddOffsetsToTxn": 3,
    "EndTxn": 3,
    "TxnOffsetCommit": 3,
}
"""The first version with compact lengths and tagged fields."""

_TOPIC_IDS = 13
"""The version from which Produce and Fetch name topics by their ids."""


class Request:
    """A request of a client.

    Args:
        frame: All its bytes, with the four of its length.
    """

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        key = int.from_bytes(frame[4:6])
        self.api = APIS.get(key, str(key))
        self.version = int.from_bytes(frame[6:8])
        self.correlation = frame[8:12]

    @property
    def can_be_refused(self) -> bool:
        """Whether an answer with an error can be made for it."""
        oldest, newest = CRAFTED.get(self.api, (0, -1))
        return oldest <= self.version <= newest and self.is_answered

    @cached_property
    def is_answered(self) -> bool:
        """Whether the broker answers it: it does not if a producer wants no acknowledgement."""
        if self.api != "Produce":
            return True
        body = self.body()
        body.string()
        return body.number(2) != 0

    def body(self) -> Reader:
        """Read what follows the header. Only for APIs in `CRAFTED`."""
        reader = Reader(self.frame, flexible=self.version >= _FLEXIBLE[self.api])
        reader.at = 12
        length = reader.number(2)  # of the client's id, which is never compact
        reader.at += max(0, length)
        reader.tags()
        return reader


class Reader:
    """Reads the fields of a request one after the other.

    Args:
        data: The bytes.
        flexible: Whether lengths are compact, and structures end with tagged fields.
    """

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self.data, self.flexible, self.at = data, flexible, 0

    def number(self, size: int) -> int:
        """Read a signed number of so many bytes."""
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], signed=True)

    def count(self, size: int) -> int:
        """Read a length, of so many bytes where it is not compact; -1 for null."""
        return self._varint() - 1 if self.flexible else self.number(size)

    def string(self) -> bytes:
        """Pass over a string, and return it with its length."""
        start = self.at
        length = self.count(2)
        self.at += max(0, length)
        return self.data[start : self.at]

    def records(self) -> None:
        """Pass over a batch of records."""
        length = self.count(4)
        self.at += max(0, length)

    def tags(self) -> None:
        """Pass over the tagged fields at the end of a structure."""
        if self.flexible:
            for _ in range(self._varint()):
                self._varint()
                length = self._varint()
                self.at += length

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


NOT_LEADER = 6
_CURRENT_LEADER = 10
"""The version from which Produce says who leads a partition now."""
_NO_LEADER = (-1).to_bytes(4, signed=True) + (1 << 20).to_bytes(4) + bytes([0])
"""The leader of a partition, and its epoch: it has none for a moment."""

Topics = list[tuple[bytes, list[int]]]
"""Topics as the request names them, and the numbers of their partitions."""


def refusal(request: Request, code: int) -> bytes:
    """Return the frame of an answer that says that everything in a request has failed.

    Args:
        request: A request that `can_be_refused`.
        code: Kafka's error code.
    """
    answer = _Answer(request)
    _CRAFT[request.api](answer, code)
    answer.tags()
    frame = request.correlation + bytes([0] if answer.flexible else []) + answer.data
    return len(frame).to_bytes(4) + frame


class _Answer:
    """An answer while it is written."""

    def __init__(self, request: Request) -> None:
        self.request, self.version = request, request.version
        self.flexible = request.version >= _FLEXIBLE[request.api]
        self.data = b""

    def number(self, value: int, size: int, *, since: int = 0) -> None:
        """Write a signed number of so many bytes, in a field that a version brought."""
        if self.version >= since:
            self.data += value.to_bytes(size, signed=True)

    def count(self, value: int, size: int = 4) -> None:
        """Write a length; -1 for null."""
        if self.flexible:
            value += 1
            while value >= 0x80:
                self.data += bytes([value & 0x7F | 0x80])
                value >>= 7
            self.data += bytes([value])
        else:
            self.number(value, size)

    def tags(self, field: bytes = b"") -> None:
        """End a structure, with the first of its tagged fields or without any."""
        if self.flexible:
            self.data += bytes([1, 0, len(field)]) + field if field else bytes([0])

    def topics(
        self, topics: Topics, partition: Callable[[int], None], *, field: bytes = b""
    ) -> None:
        """Write an array of topics, each with an array of partitions that end with a field."""
        self.count(len(topics))
        for name, numbers in topics:
            self.data += name
            self.count(len(numbers))
            for number in numbers:
                partition(number)
                self.tags(field)
            self.tags()


def _topics(
    body: Reader, partition: Callable[[Reader], None], *, by_id: bool = False, tags: bool = True
) -> Topics:
    topics = []
    for _ in range(body.count(4)):
        start = body.at
        if by_id:
            body.at += 16
        else:
            body.string()
        name, numbers = body.data[start : body.at], []
        for _ in range(body.count(4)):
            numbers.append(body.number(4))
            partition(body)
            if tags:
                body.tags()
        body.tags()
        topics.append((name, numbers))
    return topics


def _produce(answer: _Answer, code: int) -> None:
    body = answer.request.body()
    body.string()  # transactional id
    body.at += 2 + 4  # acks, time limit

    def failed(number: int) -> None:
        answer.number(number, 4)
        answer.number(code, 2)
        answer.number(-1, 8)  # base offset
        answer.number(-1, 8)  # time of appending
        answer.number(-1, 8, since=5)  # log start
        if answer.version >= 8:
            answer.count(0)  # errors of single records
            answer.count(-1, 2)  # message

    by_id = answer.version >= _TOPIC_IDS
    topics = _topics(body, Reader.records, by_id=by_id)
    is_leaderless = code == NOT_LEADER and answer.version >= _CURRENT_LEADER
    answer.topics(topics, failed, field=_NO_LEADER if is_leaderless else b"")
    answer.number(0, 4)  # throttled, ms


def _fetch(answer: _Answer, code: int) -> None:
    body, version = answer.request.body(), answer.version
    if version < 15:
        body.at += 4  # replica
    body.at += 4 + 4 + 4 + 1  # longest wait, fewest bytes, most bytes, isolation
    if version >= 7:
        body.at += 4 + 4  # session
    sizes = [(4, 9), (8, 0), (4, 12), (8, 5), (4, 0)]
    length = sum(size for size, since in sizes if version >= since)

    def wanted(body: Reader) -> None:
        body.at += length

    def failed(number: int) -> None:
        answer.number(number, 4)
        answer.number(code, 2)
        answer.number(-1, 8)  # high watermark
        answer.number(-1, 8)  # last stable offset
        answer.number(-1, 8, since=5)  # log start
        answer.count(-1)  # aborted transactions
        answer.number(-1, 4, since=11)  # preferred replica
        answer.count(0)  # records

    topics = _topics(body, wanted, by_id=version >= _TOPIC_IDS)
    answer.number(0, 4)  # throttled, ms
    # A fetch within a session names no partitions: only the session itself can fail.
    answer.number(0 if topics else code, 2, since=7)
    answer.number(0, 4, since=7)  # session
    answer.topics(topics, failed)


def _init_producer_id(answer: _Answer, code: int) -> None:
    answer.number(0, 4)
    answer.number(code, 2)
    answer.number(-1, 8)
    answer.number(-1, 2)


def _add_partitions(answer: _Answer, code: int) -> None:
    body = answer.request.body()
    body.string()  # transactional id
    body.at += 8 + 2  # producer

    def failed(number: int) -> None:
        answer.number(number, 4)
        answer.number(code, 2)

    answer.number(0, 4)
    answer.topics(_topics(body, lambda _: None, tags=False), failed)


def _add_offsets(answer: _Answer, code: int) -> None:
    answer.number(0, 4)
    answer.number(code, 2)


def _end(answer: _Answer, code: int) -> None:
    answer.number(0, 4)
    answer.number(code, 2)
    answer.number(-1, 8, since=5)
    answer.number(-1, 2, since=5)


def _commit_offsets(answer: _Answer, code: int) -> None:
    body = answer.request.body()
    body.string()  # transactional id
    body.string()  # group
    body.at += 8 + 2  # producer
    if answer.version >= 3:
        body.at += 4  # generation
        body.string()  # member
        body.string()  # instance

    def wanted(body: Reader) -> None:
        body.at += 8 + (4 if answer.version >= 2 else 0)
        body.string()

    def failed(number: int) -> None:
        answer.number(number, 4)
        answer.number(code, 2)

    answer.number(0, 4)
    answer.topics(_topics(body, wanted), failed)


_CRAFT: dict[str, Callable[[_Answer, int], None]] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "InitProducerId": _init_producer_id,
    "AddPartitionsToTxn": _add_partitions,
    "AddOffsetsToTxn": _add_offsets,
    "EndTxn": _end,
    "TxnOffsetCommit": _commit_offsets,
}
