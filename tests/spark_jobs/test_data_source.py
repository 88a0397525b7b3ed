"""`spark.read` and `spark.readStream` of arcs that are written by hand, dead attempts and all."""

import datetime as dt
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from errata.processors.plan.deployed import NewVersionError, announce
from errata.settings.place import overlaid, read_settings
from errata.spark import OptionError, Options, register
from errata.spark_jobs.data_source import BatchReader, Bound, Bounds, Opened, StreamReader
from errata.spark_jobs.reading import ArcProgress, EpochAheadError, HistoryLostError
from errata.topics.cluster import ClusterError
from errata.topics.kafka import KafkaCluster
from tests.plans import with_deployment
from tests.spark_jobs.by_hand import (
    EVERY,
    ONE,
    TWO,
    World,
    begin,
    go_on,
    insert,
    opened,
    read,
    told,
    trade,
)

on_spark = pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    return register(spark)


def asked(reader: Any, world: World, arc: str, **options: Any) -> Any:
    """Give a reader the options of an arc, those of Kafka among them, and load it."""
    given = {"network": world.plan.network, "arc": arc, "kafka.bootstrap.servers": world.servers}
    return reader.format("errata").options(**given, **options).load()


def zones(table: Any) -> dict[str, int]:
    return dict(map(tuple, table.select("zone", "n").collect()))


@pytest.fixture(scope="module")
def world(cluster: KafkaCluster, broker: Any, session: Any) -> Iterator[World]:
    made = World(cluster, broker.settings, "by-hand")
    begin(made)
    yield made
    made.close()


class Stream:
    """A stream of `trades` with a checkpoint, run until it has taken what is complete."""

    def __init__(self, session: Any, world: World, folder: Path) -> None:
        self.session, self.world, self.folder = session, world, folder

    def run(self, *, fails: bool = False, **options: Any) -> list[list[tuple]]:
        """Return what each batch brought."""
        batches = []

        def take(rows: Any, number: int) -> None:
            batches.append(told(rows.collect()))
            if fails:
                raise RuntimeError("planted")

        reader = self.session.readStream
        stream = asked(reader, self.world, "trades", content="revisions", **options).writeStream
        stream = stream.option("checkpointLocation", str(self.folder)).foreachBatch(take)
        query = stream.trigger(availableNow=True).start()
        if fails:
            with pytest.raises(Exception, match="planted"):
                query.awaitTermination()
        else:
            query.awaitTermination()
        return [batch for batch in batches if batch]


@on_spark
@pytest.mark.spark
@pytest.mark.kafka
def test_tables_and_streams_see_what_is_believed_of_complete_epochs_once(
    world: World, session: Any, tmp_path: Path
) -> None:
    zero, stream = world.epoch, Stream(session, world, tmp_path)
    table = asked(session.read, world, "trades")
    assert table.columns == ["zone", "at", "n"]
    assert zones(table) == {"a": 1, "b": 2}  # neither c, which is ahead, nor what the dead wrote
    assert stream.run() == [
        [(zero + 1, "insert", None, {"a": 1}), (zero + 1, "insert", None, {"b": 2})]
    ]
    go_on(world)
    assert zones(table) == {"a": 1, "b": 2}  # a frame that was asked keeps its snapshot
    assert zones(asked(session.read, world, "trades")) == {"a": 7, "b": 2, "c": 3}
    later = [(zero + 4, "insert", None, {"c": 3}), (zero + 5, "replace", {"a": 1}, {"a": 7})]
    assert stream.run(fails=True) == [later]
    gone = world.revisions("trades", (trade("b", 2), None))
    world.commit(ONE, 6, ("trades", 1, gone), attempt=3)
    world.commit(TWO, 6)
    newest = [(zero + 6, "delete", {"b": 2}, None)]
    assert stream.run() == [later, newest]  # the same again, though there is more by now
    assert stream.run() == []
    some = {"content": "revisions", "startingEpoch": zero + 4, "AS_OF": zero + 5}
    assert told(asked(session.read, world, "trades", **some).collect()) == later
    asked_as_of = BatchReader(opened(world, "trades"), "table", as_of=zero + 4, first=None)
    found = read(asked_as_of, asked_as_of.partitions())  # as Spark would
    assert {row["zone"]: row["n"] for row in found} == {"a": 1, "b": 2, "c": 3}


@on_spark
@pytest.mark.spark
@pytest.mark.kafka
def test_every_type_keeps_its_values_and_nulls(world: World, session: Any) -> None:
    day = dt.date(1969, 7, 20)
    full = {
        "uuid": "00000000-0000-4000-8000-000000000001",
        "at": -1,
        "micros": 253_402_300_799_999_999,
        "text": "\u00e9\U0001f600",
        "small": -(2**31),
        "large": 2**63 - 1,
        "single": 1.5,
        "double": 0.1,
        "flag": False,
        "raw": b"\x00\xff",
        "day": (day - dt.date(1970, 1, 1)).days,
        "price": -(10**38 - 1),
        "whole": 10**38 - 1,
        "alone": 1,
    }
    empty = dict.fromkeys(full) | {"uuid": full["uuid"][:-1] + "2", "at": 5, "alone": 2}
    changed = world.revisions("kept", (None, full), (empty, empty | {"alone": 3}))
    world.commit("every.0", 1, ("kept", 0, world.revisions("kept", (None, empty))))
    world.commit("every.0", 2, ("kept", 0, changed))
    world.commit("every.1", 2)
    seen = full | {
        "at": -1_000,
        "day": day,
        "price": Decimal("-9999999999999999999999999999.9999999999"),
        "whole": Decimal(10**38 - 1),
    }
    blank = empty | {"at": 5_000, "alone": 3}
    exact = "*", "unix_micros(at) as at_us", "unix_micros(micros) as micros_us"

    def plain(row: Any) -> dict[str, Any]:
        found = row.asDict()
        return found | {"at": found.pop("at_us"), "micros": found.pop("micros_us")}

    table = asked(session.read, world, "kept")
    rows = table.selectExpr(*exact).orderBy("uuid").collect()
    assert [plain(row) for row in rows] == [seen, blank]
    assert {f.name for f in table.schema.fields if not f.nullable} == {"uuid", "at", "alone"}
    assert table.schema["price"].dataType.simpleString() == "decimal(38,10)"
    revisions = asked(session.read, world, "kept", content="revisions", startingEpoch=0)
    replaced = revisions.where("op = 'replace'")
    sides = [replaced.select(f"{side}.*").selectExpr(*exact) for side in ("before", "after")]
    before, after = (plain(frame.collect()[0]) for frame in sides)
    assert (before, after) == (blank | {"alone": 2}, blank)
    inserted = revisions.where("op = 'insert' and before is null and after.alone = 1")
    assert [plain(row) for row in inserted.select("after.*").selectExpr(*exact).collect()] == [seen]


@on_spark
@pytest.mark.spark
@pytest.mark.kafka
def test_what_is_wrong_is_told_where_the_reader_is_loaded_or_the_stream_started(
    world: World, session: Any, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="has no arc 'bars'; these can be read: every, few, kept"):
        asked(session.read, world, "bars")
    rows = asked(session.readStream, world, "few").writeStream.format("noop")
    query = rows.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match=r"a stream reads what happened: it needs .*revisions"):
        query.awaitTermination()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arc": "a"}, r'needs \.option\("network"'),
        ({"network": "n"}, r'needs \.option\("arc"'),
        ({"network": "n", "arc": "a", "as_of": "now"}, "as_of needs the number .* found 'now'"),
        ({"network": "n", "arc": "a", "as_of": "-1"}, "as_of needs the number .* found '-1'"),
        ({"network": "n", "arc": "a", "content": "rows"}, "needs one of 'table', 'revisions'"),
        ({"network": "n", "arc": "a", "startingEpoch": "3"}, "startingEpoch is for revisions"),
        ({"network": "n", "arc": "a", "topic": "x"}, "no option 'topic': it has network, arc"),
    ],
)
def test_a_bad_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Options.of(given)


def test_options_go_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "errata.toml").write_text('[kafka]\n"bootstrap.servers" = "file:1"\n"a.b" = 1\n')
    given = {"network": "n", "arc": "a", "kafka.bootstrap.servers": "localhost:1"}
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "environment:1"}
    settings = overlaid({}, Options.of(given).settings)
    for options, servers in ((settings, "localhost:1"), ({}, "environment:1")):
        found = read_settings(environ | options, folder=tmp_path)
        assert found.kafka == {"bootstrap.servers": servers, "a.b": 1}
    hasty = partial(KafkaCluster, reach_s=0.5)
    monkeypatch.setattr("errata.spark_jobs.data_source.KafkaCluster", hasty)
    with pytest.raises(ClusterError, match="no broker answers at localhost:1"):
        Options.of(given).open({}, tmp_path.parent)


@pytest.fixture(scope="module")
def short(cluster: KafkaCluster, broker: Any) -> Iterator[World]:
    """A network whose superseded records may be gone at once."""
    made = World(cluster, broker.settings, "short", lag_ms=1)
    yield made
    made.close()


@pytest.mark.kafka
def test_what_may_be_compacted_away_is_refused_and_a_quiet_arc_never_is(short: World) -> None:
    few, zero = opened(short, "kept"), short.epoch
    one = {**dict.fromkeys(EVERY), "uuid": "00000000-0000-4000-8000-000000000001"}
    one |= {"at": 1, "alone": 1}
    short.commit("every.0", 1, ("kept", 0, short.revisions("kept", (None, one))))
    short.commit("every.1", 1)
    quiet = BatchReader(few, "table", as_of=zero + 1, first=None)
    assert len(read(quiet, quiet.partitions())) == 1  # long ago, but nothing was written since
    first = StreamReader(few, None)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert len(read(first, first.partitions(start, end))) == 1
    short.commit("every.0", 2, ("kept", 0, short.revisions("kept", (one, one | {"alone": 2}))))
    short.commit("every.1", 2)
    with pytest.raises(HistoryLostError, match=rf"'kept' can't be read as of epoch {zero + 1}:"):
        quiet.partitions()
    with pytest.raises(HistoryLostError, match="a later epoch"):
        BatchReader(few, "revisions", as_of=None, first=zero + 2).partitions()
    with pytest.raises(
        EpochAheadError, match=f"up to epoch {zero + 2}, but as_of {zero + 3} was requested"
    ):
        BatchReader(few, "table", as_of=zero + 3, first=None).partitions()
    again = StreamReader(few, None)
    newest = again.latestOffset(end, ReadAllAvailable())
    with pytest.raises(HistoryLostError, match=f"epoch {zero + 1}"):
        again.partitions(end, newest)  # what comes next is there, but has been there for too long
    patient = StreamReader(Opened(few.plan, replace(few.reader, kept_ms=400_000)), None)
    assert len(read(patient, patient.partitions(end, newest))) == 1  # it was silent, then wrote now
    ahead = 20_000  # a clock that is fast: what is written now is of epochs that are to come
    short.commit("every.0", ahead, ("kept", 0, short.revisions("kept", (one, one | {"alone": 3}))))
    short.commit("every.0", ahead + 1, ("kept", 0, short.revisions("kept", (one, None))))
    short.commit("every.1", ahead + 1)
    fast = BatchReader(few, "table", as_of=zero + ahead, first=None)
    with pytest.raises(HistoryLostError, match=f"epoch {zero + ahead}"):
        read(fast, fast.partitions())


@pytest.mark.kafka
@pytest.mark.parametrize(("most", "least_batches"), [(1, 12), (4, 5), (400, 1)])
def test_a_stream_takes_whole_epochs_of_about_so_many_revisions(
    cluster: KafkaCluster, broker: Any, most: int, least_batches: int
) -> None:
    world = World(cluster, broker.settings, f"limited-{most}")
    sent = []
    for epoch in range(1, 15):
        names = [f"{epoch}.{n}" for n in range(1 + epoch % 3)]
        rows = (insert(name, epoch) for name in names)
        partition = epoch % 2
        written = [("few", partition, world.revisions("few", *rows))] if epoch < 13 else []
        world.commit(f"trades.{partition}", epoch, *written)
        world.commit(f"trades.{1 - partition}", epoch)
        sent += names if epoch < 13 else []
    stream, found, batches = StreamReader(opened(world, "few"), None, most), [], 0
    stream.prepareForTriggerAvailableNow()
    for number in range(2):
        late = [("few", 0, world.revisions("few", insert("late", 1)))] if number == 0 else []
        world.commit(f"trades.{number}", 15, *late)
    now, limit = stream.initialOffset(), stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(most)
    while (bound := stream.latestOffset(now, limit)) != now:
        rows = read(stream, stream.partitions(now, bound))
        assert len({row["epoch"] for row in rows}) <= max(1, most)
        found += [row["after"]["zone"] for row in rows]
        now, batches = bound, batches + 1
    assert sorted(found) == sorted(sent)
    assert batches >= least_batches
    stream.stop()
    world.close()


@pytest.mark.kafka
def test_a_table_without_history_is_told_only_while_all_its_records_are_there(short: World) -> None:
    few = opened(short, "few")
    made = short.revisions("few", insert("a", 1), insert("b", 2))
    short.commit("trades.0", 1, ("few", 0, made))
    short.commit("trades.1", 1)
    table = BatchReader(few, "table", as_of=None, first=None)
    assert [row["zone"] for row in read(table, table.partitions())] == ["a", "b"]
    admin = AdminClient({"bootstrap.servers": short.servers})
    upto = Position(few.reader.topic, 0, 1)
    [deleted] = admin.delete_records([upto]).values()
    assert deleted.result().low_watermark == 1
    with pytest.raises(HistoryLostError, match=r"'few' keeps no history.*give the arc keep="):
        table.partitions()
    rest = BatchReader(few, "revisions", as_of=None, first=None)
    assert [row["after"]["zone"] for row in read(rest, rest.partitions())] == ["b"]


@pytest.mark.kafka
def test_a_stream_of_a_shared_arc_goes_on_where_nobody_can_still_write(
    cluster: KafkaCluster, broker: Any
) -> None:
    world = World(cluster, broker.settings, "shared")
    try:
        begin(world)
        found = opened(world, "trades")
        progress = ArcProgress.now(found.reader, found.plan)
        nothing = Bound(found.reader.topic, -1, [0, 0], [0, 0])
        later = Bounds(progress, clock_ms=lambda: time.time_ns() // 1_000_000 + 3_600_000)
        first = later.next(nothing)
        assert (first.epoch, first.starts) == (world.epoch + 1, [0, 0])  # c is ahead: behind it
        go_on(world)
        progress.view.catch_up()
        assert Bounds(progress).next(first).starts == [0, 0]  # transactions may be open
        second = later.next(first)
        assert (second.epoch, second.starts) == (
            world.epoch + 5,
            [cluster.end(found.reader.place(p)) for p in range(2)],
        )
        assert later.next(second) is second
        announce(cluster, with_deployment(world.plan, version=2))
        stream = StreamReader(found, None)
        with pytest.raises(NewVersionError, match=r"'shared' moves to version 2 .* start the"):
            stream.latestOffset(asdict(second), ReadAllAvailable())
        moved = asdict(replace(second, topic="shared.trades.v2"))
        stream.stop()
        with pytest.raises(HistoryLostError, match=r"of topic 'shared\.trades\.v2', but arc"):
            stream.partitions(moved, moved)
    finally:
        world.close()
