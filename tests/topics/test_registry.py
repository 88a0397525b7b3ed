"""The registry kept in a topic."""

import json
import sys
from itertools import islice
from types import SimpleNamespace

import pytest

from topics import outage
from topics import registry as module
from topics.cluster import ClusterError, TopicPartition
from topics.create import create_topics
from topics.memory import MemoryCluster
from topics.names import SCHEMAS_TOPIC
from topics.registry import NotAvroError, RegistryAwayError, SchemaRegistry, UnknownSchemaError, ids
from topics.registry_server import RegistryServer, registry
from topics.settings import TopicSpec, compacted

A = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "long"}]}
B = {"type": "record", "name": "B", "fields": []}


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def any_cluster(request):
    if request.param == "kafka":
        settings = request.getfixturevalue("broker").settings
        create_topics(settings, [TopicSpec(SCHEMAS_TOPIC, 1, compacted())])
        return request.getfixturevalue("cluster")
    return in_memory()


def in_memory() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create(SCHEMAS_TOPIC, 1)
    return cluster


def log(cluster: MemoryCluster) -> list[dict]:
    records = cluster.reader({TopicPartition(SCHEMAS_TOPIC, 0): 0}).poll()
    return [json.loads(value) for r in records for value in r.values]


def send(cluster, value: bytes | None) -> None:
    cluster.send(SCHEMAS_TOPIC, partition=0, key=b"k", value=value)


def test_what_one_process_registers_another_reads(any_cluster):
    one, other = SchemaRegistry(any_cluster), SchemaRegistry(any_cluster)
    first, second = one.register("tape.a-value", A), one.register("tape.b-value", B)
    assert first != second
    assert 0 < first < 2**31
    assert (other.schema(first), other.schema(second)) == (A, B)
    assert other.register("tape.a-value", A) == first
    one.close()
    other.close()


def test_an_unknown_id_is_unknown_only_after_reading_to_the_end(any_cluster):
    reading = SchemaRegistry(any_cluster)
    with pytest.raises(UnknownSchemaError, match="schema 77 is not in topic '_errata_schemas'"):
        reading.schema(77)
    fresh = {"type": "enum", "name": "Late", "symbols": ["x"]}
    late = SchemaRegistry(any_cluster).register("late", fresh)
    assert reading.schema(late) == fresh


def test_registering_again_writes_nothing():
    cluster = in_memory()
    for _life in range(2):
        schemas = SchemaRegistry(cluster)
        assert schemas.register("a", A) == schemas.register("a", A)
    assert len(log(cluster)) == 1


def test_one_schema_under_two_subjects_has_one_id_and_two_records():
    cluster = in_memory()
    schemas = SchemaRegistry(cluster)
    assert schemas.register("a", A) == schemas.register("b", A)
    assert [entry["subject"] for entry in log(cluster)] == ["a", "b"]


def test_two_that_register_at_once_agree():
    cluster = in_memory()
    one, other = SchemaRegistry(cluster), SchemaRegistry(cluster)

    def meanwhile(step: str) -> None:
        if step == "send":  # the first is about to write: the other has written by then
            cluster.on_step = None
            found.append(other.register("a", A))

    found: list[int] = []
    cluster.on_step = meanwhile
    assert [one.register("a", A)] == found


def test_of_two_schemas_with_one_id_the_first_in_the_log_has_it(monkeypatch):
    monkeypatch.setattr(module, "ids", lambda schema: iter(range(5, 99)))
    cluster = in_memory()
    one, other = SchemaRegistry(cluster), SchemaRegistry(cluster)

    def meanwhile(step: str) -> None:
        if step == "send":
            cluster.on_step = None
            other.register("b", B)

    cluster.on_step = meanwhile
    assert one.register("a", A) == 6
    assert other.register("b", B) == 5
    third = SchemaRegistry(cluster)
    assert (third.schema(5), third.schema(6)) == (B, A)
    assert (third.register("a", A), third.register("b", B)) == (6, 5)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"id": 1}',
        b'{"id": "1", "subject": "a", "schema": {}}',
        b'{"id": true, "subject": "a", "schema": {}}',
        b'{"id": [], "subject": "a", "schema": {}}',
        b'{"id": 1, "subject": {}, "schema": {}}',
        b'{"id": 1, "subject": "a", "schema": "long"}',
    ],
)
def test_a_malformed_record_is_skipped(value, caplog):
    cluster = in_memory()
    send(cluster, value)
    schemas = SchemaRegistry(cluster)
    assert schemas.schema(schemas.register("a", A)) == A
    assert "malformed" in caplog.text
    with pytest.raises(UnknownSchemaError):
        schemas.schema(1)


def test_a_record_that_takes_an_id_for_another_schema_misleads_nobody():
    cluster = in_memory()
    taken = next(ids(A))
    send(cluster, json.dumps({"id": taken, "subject": "a", "schema": B}).encode())
    schemas = SchemaRegistry(cluster)
    assert schemas.register("a", A) == next(islice(ids(A), 1, None))


def test_ids_depend_on_content_alone_and_are_never_0():
    assert list(islice(ids({"a": 1, "b": 2}), 3)) == list(islice(ids({"b": 2, "a": 1}), 3))
    assert all(0 < i < 2**31 for n in range(100) for i in islice(ids({"n": n}), 3))


class Refused(Exception):
    def __init__(self, status: int) -> None:
        self.http_status_code, self.error_message = status, "incompatible"


def test_the_latest_schema_of_a_subject_is_the_one_registered_last(any_cluster):
    one, other = SchemaRegistry(any_cluster), SchemaRegistry(any_cluster)
    assert other.latest("latest") is None
    one.register("latest", A)
    second = one.register("latest", B)
    one.register("of another", A)
    assert other.latest("latest") == (second, B)


class Client:
    def __init__(self, conf: dict) -> None:
        self.conf, self.kept = conf, {}

    def register_schema(self, subject, schema):
        if subject == "bad":
            raise Refused(409)
        self.kept[7] = schema
        return 7

    def get_latest_version(self, subject):
        if subject == "none":
            raise Refused(404)
        return SimpleNamespace(schema_id=7, schema=self.kept[7])

    def get_schema(self, schema_id):
        if schema_id == 500:
            raise Refused(500)
        if schema_id == 111:
            raise ConnectionError("refused")
        if schema_id not in self.kept:
            raise Refused(404)
        return self.kept[schema_id]


def configured(monkeypatch, http="httpx2"):
    fake = SimpleNamespace(
        SchemaRegistryClient=Client,
        SchemaRegistryError=Refused,
        Schema=lambda text, kind: SimpleNamespace(schema_str=text, schema_type=kind),
    )
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", fake)
    for name in ("httpx2", "httpx"):  # None: it is not installed
        there = SimpleNamespace(HTTPError=ConnectionError) if name == http else None
        monkeypatch.setitem(sys.modules, name, there)
    return registry(in_memory(), url="http://registry")


@pytest.mark.parametrize("http", ["httpx2", "httpx"])
def test_a_configured_server_is_used_instead(monkeypatch, http):
    server = configured(monkeypatch, http)
    assert server._client.conf["url"] == "http://registry"
    assert isinstance(server, RegistryServer)
    assert server.schema(server.register("a", A)) == A
    assert (server.latest("a"), server.latest("none")) == ((7, A), None)
    with pytest.raises(UnknownSchemaError, match="schema 8"):
        server.schema(8)
    with pytest.raises(ClusterError, match="subject 'bad': incompatible"):
        server.register("bad", A)
    with pytest.raises(ClusterError, match="refuses schema 500"):
        server.schema(500)
    with pytest.raises(ClusterError, match=r"asked for schema 111, gives no answer.*start it"):
        server.schema(111)


def test_a_schema_of_another_kind_than_avro_is_told(monkeypatch):
    server = configured(monkeypatch)
    server.register("a", A)
    server._client.kept[9] = SimpleNamespace(
        schema_str='syntax = "proto3";', schema_type="PROTOBUF"
    )
    with pytest.raises(NotAvroError, match="schema 9 is of kind PROTOBUF"):
        server.schema(9)


def test_without_a_server_the_topic_is_used():
    assert isinstance(registry(in_memory()), SchemaRegistry)


def test_a_server_without_its_client_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(ClusterError, match="pip install"):
        RegistryServer("http://registry")


class Registry:
    """A server that is away at times, and a clock that goes on while one sleeps."""

    def __init__(self, monkeypatch, away: list[Exception | None]) -> None:
        self.away, self.now_s = away, 0.0
        monkeypatch.setattr(outage, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(outage, "sleep", self.sleep)
        self.server = configured(monkeypatch)
        self.server._client.kept[7] = SimpleNamespace(schema_str=json.dumps(A), schema_type=None)
        monkeypatch.setattr(self.server._client, "get_schema", self.get_schema)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def get_schema(self, schema_id):
        fault = self.away.pop(0) if self.away else None
        if fault is not None:
            raise fault
        return self.server._client.kept[7]


AWAY = ConnectionError("refused")


def told(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_server_that_is_not_there_yet_is_waited_for(monkeypatch, caplog):
    found = Registry(monkeypatch, [AWAY, Refused(503), AWAY])
    assert found.server.schema(7) == A
    assert found.now_s == 1.5
    assert told(caplog) == [
        "the schema registry gives no answer: refused; it is waited for",
        "the schema registry answers again",
    ]


def test_a_server_that_does_not_come_is_given_up(monkeypatch):
    found = Registry(monkeypatch, [AWAY] * 1000)
    with pytest.raises(RegistryAwayError, match="gives no answer: refused; start it, or correct"):
        found.server.schema(7)
    assert outage.WAIT_S < found.now_s < outage.WAIT_S + 2


def test_a_server_that_goes_away_later_is_not_waited_for_and_known_schemas_are_known(
    monkeypatch, caplog
):
    found = Registry(monkeypatch, [None, AWAY, AWAY])
    assert found.server.schema(7) == A
    for _ in range(2):
        with pytest.raises(RegistryAwayError):
            found.server.schema(8)
        assert found.server.schema(7) == A
    assert found.now_s == 0
    assert (found.server.outage.told, found.server.outage.failure_count) == ("refused", 2)
    assert found.server.schema(8) == A
    assert (found.server.outage.told, found.server.outage.failure_count) == ("", 2)
    assert told(caplog) == [
        "the schema registry gives no answer: refused; what is known is gone on with",
        "the schema registry answers again",
    ]


def test_a_refusal_is_an_answer(monkeypatch, caplog):
    found = Registry(monkeypatch, [Refused(409), AWAY])
    with pytest.raises(ClusterError, match="refuses schema 7"):
        found.server.schema(7)
    with pytest.raises(RegistryAwayError):
        found.server.schema(7)
    assert found.now_s == 0
