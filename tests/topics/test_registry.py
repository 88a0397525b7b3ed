"""The registry kept in a topic."""

import json
from itertools import islice

import pytest

from errata.topics import registry as module
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import SchemaRegistry, UnknownSchemaError, ids
from errata.topics.settings import TopicSpec, compacted

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


def test_skipped_records_are_kept_by_key_until_something_replaces_them():
    cluster = in_memory()
    schemas = SchemaRegistry(cluster)
    schemas.register("a", A)
    send(cluster, b"garbage")
    send(cluster, b"more")
    cluster.send(SCHEMAS_TOPIC, partition=0, key=None, value=b"without a key")
    schemas.read()
    assert schemas.skipped == {b"k": 2, None: 3}
    send(cluster, None)
    schemas.read()
    assert schemas.skipped == {None: 3}
    SchemaRegistry(MemoryCluster()).read()  # there is no topic yet


def test_the_deletion_of_a_schema_is_told_it_is_nobodys():
    cluster = in_memory()
    schemas = SchemaRegistry(cluster)
    taken = schemas.register("a", A)
    key = f"subject/a/{taken}".encode()
    cluster.send(SCHEMAS_TOPIC, partition=0, key=key, value=None)
    schemas.read()
    assert schemas.skipped == {key: 1}


def test_a_record_that_takes_an_id_for_another_schema_misleads_nobody():
    cluster = in_memory()
    taken = next(ids(A))
    send(cluster, json.dumps({"id": taken, "subject": "a", "schema": B}).encode())
    schemas = SchemaRegistry(cluster)
    assert schemas.register("a", A) == taken
    assert SchemaRegistry(cluster).schema(taken) == A


def test_a_schema_whose_record_a_foreign_one_replaced_is_registered_again():
    """As the log cleaner leaves the topic: the last record of a key, here with swapped fields."""
    wide = A | {"fields": [*A["fields"], {"name": "y", "type": "long"}]}
    cluster, taken = in_memory(), next(ids(wide))
    swapped = wide | {"fields": wide["fields"][::-1]}
    send(cluster, json.dumps({"id": taken, "subject": "a", "schema": swapped}).encode())
    reading = SchemaRegistry(cluster)
    with pytest.raises(UnknownSchemaError):
        reading.schema(taken)
    assert reading.latest("a") is None
    assert SchemaRegistry(cluster).register("a", wide) == taken
    assert reading.schema(taken) == wide


def test_ids_depend_on_content_alone_and_are_never_0():
    assert list(islice(ids({"a": 1, "b": 2}), 3)) == list(islice(ids({"b": 2, "a": 1}), 3))
    assert all(0 < i < 2**31 for n in range(100) for i in islice(ids({"n": n}), 3))


def test_the_latest_schema_of_a_subject_is_the_one_registered_last(any_cluster):
    one, other = SchemaRegistry(any_cluster), SchemaRegistry(any_cluster)
    assert other.latest("latest") is None
    one.register("latest", A)
    second = one.register("latest", B)
    one.register("of another", A)
    assert other.latest("latest") == (second, B)


def test_the_topic_judges_that_the_new_schema_can_read_what_the_latest_wrote():
    nowhere, cluster = SchemaRegistry(MemoryCluster()), in_memory()
    assert nowhere.judge("a", A).kind == "new"
    SchemaRegistry(cluster).register("a", A)
    schemas = SchemaRegistry(cluster)
    more = {"name": "y", "type": ["null", "long"], "default": None}
    wider = A | {"fields": A["fields"] + [more]}
    worse = A | {"fields": [{"name": "x", "type": "string"}]}
    assert schemas.judge("b", A).kind == "new"
    assert schemas.judge("a", A).kind == "same"
    assert schemas.judge("a", wider).kind == "compatible"
    refused = schemas.judge("a", worse)
    assert (refused.kind, refused.level) == ("incompatible", "BACKWARD")
    assert refused.reasons == ("field 'x' was long, is string",)
    assert len(log(cluster)) == 1
