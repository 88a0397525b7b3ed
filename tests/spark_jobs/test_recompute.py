"""What an arc's topic holds, and the ways from connection points to another arc."""

import random

import polars as pl
import pyarrow as pa
import pytest

from errata import Network, Stream, hopping, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.schemas import revisions as frames
from errata.spark_jobs import reading
from errata.spark_jobs.recompute import (
    Division,
    Way,
    starts,
    unpacked,
    walk,
    ways_from,
    ways_to,
)
from errata.testing import Driver
from errata.topics.cluster import ClusterError, TopicPartition

MINUTE = 60_000


def network() -> Network:
    net = Network("n")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "product": "string", "n": "long"},
        identity=["key"],
        event_time="at",
        partition_by=["key"],
        keep="2d",
    )
    real = trades.where("real", "n > 0")
    large, small = real.map("twice", m="n * 2").route(large="n > 10", small="rest")
    both = net.union("both", large, small)
    net.union("tagged", trades, real)
    window = hopping("30m", every="20m")
    sums = both.aggregate("sums", by=["product"], window=window, s="sum(m)", keep="1d")
    loose = both.aggregate("loose", by=["product"], window=window, s="sum(m)")
    sums.aggregate("kept", by=["product"], window=tumbling("1h"), s="sum(s)")
    loose.aggregate("days", by=["product"], window=tumbling("1d"), s="sum(s)")
    return net


@pytest.fixture(scope="module")
def plan() -> CompiledPlan:
    return compile_network(network())


def names(way: Way) -> list[str]:
    return [way.start, *(box.arc.name for box in way.boxes)]


def test_a_union_is_reached_by_a_way_for_each_input(plan: CompiledPlan) -> None:
    assert [names(way) for way in ways_to(plan, "both")] == [
        ["trades", "real", "twice", "large", "both"],
        ["trades", "real", "twice", "small", "both"],
    ]


def test_an_aggregate_without_history_is_recomputed_one_with_history_is_read(
    plan: CompiledPlan,
) -> None:
    assert names(ways_from(plan, "loose")[0]) == ["loose"]
    assert ways_from(plan, "loose")[0].is_computed
    assert not ways_from(plan, "sums")[0].is_computed
    assert ways_to(plan, "sums")[0].is_computed  # what is audited is not read
    read = {way.start for way in walk(plan, ways_to(plan, "days")) if not way.is_computed}
    assert read == {"trades"}
    read = {way.start for way in walk(plan, ways_to(plan, "kept")) if not way.is_computed}
    assert read == {"sums"}


def test_an_aggregate_gets_what_it_looks_at_only(plan: CompiledPlan) -> None:
    (above,) = plan.boxes["sums"].history_inputs
    assert above.columns == ["key", "at", "product", "m"]


def test_a_join_is_recomputed_from_both_its_sides_or_from_the_arc_that_they_share() -> None:
    net = network()
    both, sums, trades = (Stream(net, name) for name in ("both", "sums", "trades"))
    net.join("met", {"b": both, "s": sums}, on=["product"], d="b.m - s.s")
    net.join("own", {"b": both, "t": trades}, on=["key"], d="b.m - t.n", keep="1d")
    twice = trades.map("again", m="n * 2")
    net.join("same", {"a": twice, "t": trades}, on=["key"], d="a.m - t.n")
    plan = compile_network(net)
    assert [above.arc.name for above in plan.boxes["same"].history_inputs] == ["trades"]
    for arc, read in (("met", ["trades", "sums"]), ("own", ["trades"]), ("same", ["trades"])):
        (way,) = ways_to(plan, arc)
        assert way.is_computed
        assert starts(plan, [way]) == read


def test_a_loop_is_recomputed_in_one_place_from_all_that_enters_it() -> None:
    net = Network("n")
    links = net.source(
        "links",
        fields={"old": "string", "at": "timestamp-millis", "new": "string"},
        identity=["old"],
        event_time="at",
        keep="1d",
    )
    odd = links.where("odd", "old <> 'C'")
    net.iterate(
        "last",
        links,
        lambda x: x.lookup("next", odd, on={"new": "old"}, new="coalesce(odd.new, new)"),
    )
    plan = compile_network(net)
    (way,) = ways_to(plan, "last")
    box = plan.boxes["last"]
    assert way.is_computed
    assert [above.by for above in box.history_inputs] == [(), ()]
    assert starts(plan, [way]) == ["links"]
    schema = {"old": pl.String, "at": pl.Int64, "new": pl.String}
    content = pl.DataFrame({"old": list("ABCD"), "at": range(4), "new": list("BCDE")}, schema)
    inputs, buckets = [], set()
    for number, above in enumerate(box.history_inputs):
        chains = tuple(way.boxes for way in ways_from(plan, above.arc.name))
        division = Division(chains, above.arc, (), tuple(above.columns), 16, number)
        table = pa.Table.from_batches(list(division.rows(content)))
        buckets |= set(table["bucket"].to_pylist())
        inputs.append(unpacked(table, above.arc, above.columns, side=number))
    assert len(buckets) == 1
    assert sorted(box.recompute(*inputs).select("old", "new").rows()) == [
        ("A", "C"), ("B", "C"), ("C", "E"), ("D", "E"),
    ]  # fmt: skip


def on(ways: list[Way], tuples: pl.DataFrame) -> list[pl.DataFrame]:
    """What comes of tuples on some ways, a frame a bucket."""
    last = ways[0].boxes[-1]
    columns = tuple(last.arc.fields)
    division = Division(tuple(way.boxes for way in ways), last.arc, ("product",), columns, 4, 0)
    rows = list(division.rows(tuples))
    assert len({row["bucket"][0].as_py() for row in rows}) == len(rows)
    return [unpacked(pa.Table.from_batches([row]), last.arc, columns) for row in rows]


def test_blocks_of_all_ways_together_are_what_the_boxes_make_of_everything() -> None:
    with Driver(network()) as driver:
        for key in range(60):
            after = {
                "key": f"{key}",
                "at": key * MINUTE,
                "product": "abcde"[key % 5],
                "n": key % 13,
            }
            driver.send("trades", {"op": "insert", "after": after})
        driver.close_epoch()
        plan, trades = driver.plan, pl.DataFrame(driver.table("trades"))
        for arc in ("both", "tagged"):
            parts = on(ways_to(plan, arc), trades)
            groups = [group for part in parts for group in part["product"].unique()]
            assert len(parts) > 1
            assert sorted(groups) == list("abcde")  # a group is in one bucket
            order = list(plan.topology.arcs[arc].identity)
            made = pl.concat(parts).sort(order)
            assert made.rows(named=True) == driver.table(arc)


def test_content_is_the_same_however_often_what_was_superseded_is_let_go(
    plan: CompiledPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, arc = random.Random(5), plan.topology.arcs["trades"]
    rows = [
        {
            "op": 2,
            "after.key": f"{chance.randrange(9)}",
            "after.n": n,
            "epoch": chance.randrange(40),
        }
        for n in range(200)
    ]
    schema = frames.schema(arc.fields) | {"epoch": pl.Int64}
    log = pl.DataFrame(rows, schema=schema)
    monkeypatch.setattr(reading, "_ROWS", 3)
    found = reading.content(log.iter_slices(7), arc)
    whole = frames.fold(log, arc.identity, list(arc.fields))
    assert found.sort("key").equals(whole.sort("key"))
    newest = {row["after.key"]: row for row in sorted(rows, key=lambda row: row["epoch"])}
    assert dict(found.select("key", "n").iter_rows()) == {
        key: row["after.n"] for key, row in newest.items()
    }


def test_a_log_whose_end_an_open_transaction_holds_back_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "LIMIT_S", 0.01)
    with Driver(network()) as driver:
        codec = driver.shared.codec("trades")
        place = TopicPartition(codec.topic, 0)
        transactions = driver.cluster.transactions("a stranger's")
        transactions.begin()
        transactions.produce(codec.topic, partitions=[0], keys=[b"k"], values=[b"v"])
        transactions.flush()
        end = driver.cluster.end(place)
        with pytest.raises(ClusterError, match=f"partition 0 of topic '{codec.topic}'.*its end"):
            list(reading.revisions(driver.cluster, codec, 0, (0, end)))
        transactions.commit()
        assert list(reading.revisions(driver.cluster, codec, 0, (0, end))) != []
