"""A revision sent by hand: ingest takes it in, and it has arrived when the command says so."""

import json
from dataclasses import replace

import polars as pl
import pytest

from errata import Network
from errata.client.sending import NoSuchRecordError, Parcel, deliver, source_records
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.compile.compiler import compile_network
from errata.processors.ingest.intake import Intake
from errata.processors.plan.topology import Source
from errata.schemas import revisions as frames
from errata.topics import names
from errata.topics.cluster import ClusterError, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "price": "decimal(9,2)",
    "note": "string?",
}
OLD = {"key": "a", "at": 60_000, "price": 250, "note": None}
NEW = {"key": "a", "at": 60_000, "price": 275, "note": 'so, "called"'}
SIDES = {"insert": (None, 1), "delete": (0, None), "replace": (0, 1)}


@pytest.fixture
def registry() -> SchemaRegistry:
    cluster = MemoryCluster()
    cluster.create(names.SCHEMAS_TOPIC, 1)
    return SchemaRegistry(cluster)


def source(envelope: str, form: str) -> Source:
    net = Network("n")
    net.source("s", topic="t", fields=FIELDS, identity=["key"], event_time="at")
    return replace(compile_network(net).topology.sources["s"], envelope=envelope, format=form)


def revision(op: str) -> pl.DataFrame:
    row: dict[str, object] = {"op": frames.OPS.index(op)}
    for name, place in zip(("before", "after"), SIDES[op], strict=True):
        for field in FIELDS:
            row[f"{name}.{field}"] = None if place is None else (OLD, NEW)[place][field]
    fields = source("native", "json").arc.fields
    return pl.DataFrame([row], schema=frames.schema(fields))


def taken_in(
    kind: Source, records: list[tuple[bytes, bytes | None]], registry: SchemaRegistry
) -> pl.DataFrame:
    """What ingest makes of records."""
    keys, values = zip(*records, strict=True)
    intake = Intake(kind, ArcCodec(kind.arc, "n.s", registry))
    found = intake.decode(list(values), list(keys))
    assert not found.refused
    return found.frame


@pytest.mark.parametrize("form", ["json", "avro", "csv"])
@pytest.mark.parametrize("envelope", ["native", "debezium", "upsert", "append"])
@pytest.mark.parametrize("op", SIDES)
def test_ingest_takes_in_what_was_meant(
    registry: SchemaRegistry, envelope: str, form: str, op: str
) -> None:
    if form == "csv" and envelope in ("native", "debezium"):
        return  # refused when the network is declared
    kind = source(envelope, form)
    if (envelope, op) == ("append", "delete"):
        with pytest.raises(NoSuchRecordError, match="has no records that delete"):
            source_records(kind, revision(op), registry=registry, time_ms=7)
        return
    records = source_records(kind, revision(op), registry=registry, time_ms=7)
    found = taken_in(kind, records, registry)
    meant = op if envelope in ("native", "debezium") or op == "delete" else "insert"
    assert found["op"].to_list() == [frames.OPS.index(meant)]
    if op == "delete":
        assert frames.identities(found, ["key"])["key"].to_list() == ["a"]
    else:
        assert frames.side(found, frames.AFTER, list(FIELDS)).row(0, named=True) == NEW
    if envelope in ("native", "debezium") and op != "insert":
        assert frames.side(found, frames.BEFORE, list(FIELDS)).row(0, named=True) == OLD


def test_a_delete_of_debezium_is_followed_by_a_tombstone(registry: SchemaRegistry) -> None:
    kind = source("debezium", "json")
    one, tombstone = source_records(kind, revision("delete"), registry=registry, time_ms=7)
    assert (one[0], tombstone) == (b'{"key":"a"}', (b'{"key":"a"}', None))
    assert one[1] is not None
    told = json.loads(one[1])
    assert (told["op"], told["ts_ms"], told["before"]["price"]) == ("d", 7, 2.5)


def test_csv_has_the_fields_in_declared_order_digit_by_digit(registry: SchemaRegistry) -> None:
    kind = source("upsert", "csv")
    ((_, value),) = source_records(kind, revision("replace"), registry=registry, time_ms=7)
    assert value == b'"a",60000,2.75,"so, ""called"""'
    ((_, value),) = source_records(kind, revision("delete"), registry=registry, time_ms=7)
    assert value is None


def test_avro_schemas_have_the_topics_subjects(registry: SchemaRegistry) -> None:
    source_records(source("native", "avro"), revision("insert"), registry=registry, time_ms=7)
    assert {subject for subject, _ in registry._subjects} == {"t-key", "t-value"}


ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("t", 2)
    made.send("t", partition=0, key=b"k", value=b"v")  # the same as one that is sent later
    return made


def test_each_record_has_its_offset_in_order(cluster: MemoryCluster) -> None:
    same = Parcel(ONE, b"k", b"v")
    records = [same, Parcel(TWO, None, b"w"), same, Parcel(ONE, b"k", None)]
    assert deliver(cluster, records) == [1, 0, 2, 3]
    assert deliver(cluster, []) == []


def test_what_others_write_meanwhile_is_passed_over(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = cluster.send

    def crowded(topic: str, **record) -> None:
        send(topic, partition=0, key=b"other", value=b"theirs")
        send(topic, **record)

    monkeypatch.setattr(cluster, "send", crowded)
    assert deliver(cluster, [Parcel(ONE, b"k", b"v"), Parcel(ONE, b"k", b"w")]) == [2, 4]


def test_what_can_not_be_read_in_time_is_told(cluster: MemoryCluster) -> None:
    life = cluster.transactions("open")
    life.begin()
    life.produce("t", partitions=[1], keys=[None], values=[b"x"])
    with pytest.raises(ClusterError, match="1 of 2 records were sent but can't be read after 0 s"):
        deliver(cluster, [Parcel(ONE, None, b"v"), Parcel(TWO, None, b"w")], limit_s=0.0)
