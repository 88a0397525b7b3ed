"""The audit: what is compared; and a whole network on Kafka and Spark."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from errata.cli.reconcile import samples
from errata.processors.wire.replay import unpack
from errata.run.worker import Worker
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType, physical
from errata.settings.loading import load
from errata.settings.place import Place
from errata.spark_jobs.as_of import Bound
from errata.spark_jobs.recompute import Division
from errata.spark_jobs.reconcile import ACTUAL, EXPECTED, Comparison, Finding
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.errata.conftest import Errata, environ, errata  # noqa: F401  fixtures
from tests.spark_jobs.at_work import at_work
from tests.spark_jobs.audited import JOINED, TAPE, Running
from tests.spark_jobs.kept import Kept

FIELDS = {name: FieldType.parse(kind) for name, kind in (
    ("k", "string"), ("at", "timestamp-millis"), ("n", "long?"), ("d", "decimal(30,2)"),
    ("x", "double"), ("__hidden", "long"),
)}  # fmt: skip
ARC = Arc("a", FIELDS, identity=("k",), event_time="at", partition_by=("k",))


def tuples(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=physical(FIELDS), orient="row")


def found(said: pl.DataFrame, made: pl.DataFrame, bound: Bound | None = None) -> dict[str, int]:
    row = Comparison(ARC, bound or Bound(), 10).compare(said, made)
    return {name: value for name, value in row.items() if value and name != "samples"}


def test_equal_tuples_in_any_order_are_no_difference_and_hidden_fields_do_not_count() -> None:
    one, two = ("a", 1, None, 10**25, 0.5, 1), ("b", 2, 3, -1, math.nan, 2)
    assert found(tuples(one, two), tuples((*two[:-1], 9), one)) == {"tuples": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        ("a", 2, 5, 7, 0.5, 0),
        ("a", 1, 6, 7, 0.5, 0),
        ("a", 1, None, 7, 0.5, 0),
        ("a", 1, 5, 8, 0.5, 0),
        ("a", 1, 5, 7, 0.5 + 1e-8, 0),
        ("a", 1, 5, 7, math.nan, 0),
        ("a", 1, 5, 7, math.inf, 0),
    ],
)
def test_a_tuple_of_which_any_visible_field_differs_is_different(wrong: tuple[Any, ...]) -> None:
    right = ("a", 1, 5, 7, 0.5, 0)
    assert found(tuples(wrong), tuples(right)) == {"tuples": 1, "replace": 1}
    assert found(tuples(right), tuples(wrong)) == {"tuples": 1, "replace": 1}


@pytest.mark.parametrize("x", [0.1 + 0.2, -1e300, math.inf, -math.inf, math.nan, 0.0])
def test_floats_are_equal_if_they_are_near(x: float) -> None:
    near = x * (1 + 5e-10) if math.isfinite(x) else x
    assert found(tuples(("a", 1, 5, 7, x, 0)), tuples(("a", 1, 5, 7, near, 0))) == {"tuples": 1}


def test_missing_unexpected_and_twofold_tuples_are_told_apart() -> None:
    a, b, c = (("a", 1, 5, 7, 0.5, 0), ("b", 1, 5, 7, 0.5, 0), ("c", 1, 5, 7, 0.5, 0))
    assert found(tuples(a, b), tuples(a)) == {"tuples": 2, "delete": 1}
    assert found(tuples(a), tuples(a, b, c)) == {"tuples": 1, "insert": 2}
    assert found(tuples(a, a), tuples(a)) == {"tuples": 2, "delete": 1}


def test_the_rows_of_a_bucket_are_parted_into_what_is_said_and_what_was_made() -> None:
    comparison, rows = Comparison(ARC, Bound(), 10), list[pa.RecordBatch]()
    a, b, c = (("a", 1, 5, 7, 0.5, 0), ("b", 1, 5, 7, 0.5, 0), ("c", 1, 5, 7, 0.5, 0))
    for side, some in ((ACTUAL, [a, b]), (EXPECTED, [b]), (EXPECTED, [c])):
        division = Division(((),), ARC, ("k",), tuple(comparison.columns), 1, side)
        rows += division.rows(tuples(*some))
    (row,) = comparison(pa.Table.from_batches(rows)).to_pylist()
    samples = unpack(row.pop("samples"))
    assert row == {"tuples": 2, "left_out": 0, "insert": 1, "delete": 1, "replace": 0}
    assert samples["before.k"].drop_nulls().to_list() == ["a"]
    assert samples["after.k"].drop_nulls().to_list() == ["c"]


def test_as_many_differences_are_told_as_were_asked_for() -> None:
    made = tuples(*((f"{key}", 1, 5, 7, 0.5, 0) for key in range(5)))
    row = Comparison(ARC, Bound(), 2).compare(tuples(), made)
    assert (row["insert"], unpack(row["samples"]).height) == (5, 2)


def test_of_a_different_tuple_the_fields_that_differ_are_told() -> None:
    made, said = ("a", 1, 5, 7, math.nan, 0), ("a", 1, None, 7, math.nan, 3)
    row = Comparison(ARC, Bound(), 2).compare(tuples(said), tuples(made))
    finding = Finding("a", 1, 1, 0, 0, 1, 0, unpack(row["samples"]))
    fields = {"n": {"arc": None, "recomputed": 5}}
    (sample,) = samples(ARC, finding)
    assert sample == {"status": "different", "identity": {"k": "a"}, "fields": fields}


def test_what_retention_may_have_taken_is_left_out() -> None:
    old, new = ("a", 99, 5, 7, 0.5, 0), ("b", 100, 5, 7, 0.5, 0)
    since = Bound(from_ms=100)
    assert found(tuples(old, new), tuples(new), since) == {"tuples": 1, "left_out": 1}
    assert found(tuples(new), tuples(old, new), since) == {"tuples": 1}
    one_sided = Bound(unjudged=(frames.INSERT,))
    assert found(tuples(new), tuples(old, new), one_sided) == {"tuples": 1, "left_out": 1}
    assert found(tuples(old, new), tuples(new), one_sided) == {"tuples": 2, "delete": 1}


# -------------------------------------------------------------------- on Kafka and Spark


@pytest.fixture
def running(
    request: pytest.FixtureRequest, tmp_path: Path, broker: EmbeddedBroker, cluster: KafkaCluster
) -> Iterator[Running]:
    path, text = tmp_path / "tape.py", request.param
    path.write_text(text)
    network = load(str(path))
    create_topics(broker.settings, [TopicSpec(f"{network.name}-trades", 2)])
    worker = Worker(network, Place(dict(broker.settings), tmp_path / "state"))
    for scope in ("ingest.trades", *worker.plan.topology.scopes):
        worker.add_scope(scope)
    worker.add_sweepers()
    with at_work(worker):
        yield Running(cluster, worker)


Told = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def told(
    broker: EmbeddedBroker,
    spark: Any,
    errata: Errata,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Told:
    """Run the audit; returns what it says of each arc."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setattr("errata.cli.reconcile.open_session", lambda **_: Kept(spark))

    def run(*arguments: str, status: int) -> dict[str, dict[str, Any]]:
        done = errata("reconcile", "tape.py", "--json", *arguments)
        assert done.status == status, done.err
        return {line["arc"]: line for line in map(json.loads, done.out.splitlines())}

    return run


def wrong(line: dict[str, Any]) -> tuple[int, int, int]:
    return line["missing"], line["unexpected"], line["different"]


def held(running: Running, arc: str, field: str) -> tuple[int, pl.DataFrame]:
    """Return a partition of an arc, and the last revision of each tuple there that has a field."""
    plan = running.worker.plan
    for partition, found in enumerate(running.believed(plan, arc)):
        last = frames.last(found, plan.topology.arcs[arc].identity)
        there = last.filter(pl.col("op") != frames.DELETE, pl.col(f"after.{field}").is_not_null())
        if there.height:
            return partition, there
    raise AssertionError(f"{arc} holds nothing")


def with_one_more(revision: pl.DataFrame, arc: Arc, field: str) -> pl.DataFrame:
    """Return a replace of a tuple by one with one more in a field."""
    before = [pl.col(frames.AFTER + name).alias(frames.BEFORE + name) for name in arc.fields]
    more = pl.col(frames.AFTER + field) + 1
    return revision.with_columns(pl.lit(frames.REPLACE, pl.UInt8).alias("op"), *before, more)


on_spark = pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open


@pytest.mark.kafka
@pytest.mark.spark
@on_spark
@pytest.mark.parametrize("running", [TAPE], ids=["tape"], indirect=True)
def test_an_arc_that_is_right_is_found_right_and_one_record_altered_by_hand_is_found(
    running: Running, told: Told
) -> None:
    epochs = []
    for hour in (0, 6, 30, 3):  # the last ones are late: they correct what is closed
        running.send(120, hour)
        epochs.append(running.settle())
    plan = running.worker.plan
    corrected = pl.concat(running.believed(plan, "sums"))
    assert (corrected["op"] == frames.REPLACE).any()

    right = told(status=0)
    assert list(right) == ["sums", "days"]
    for arc in right.values():
        assert wrong(arc) == (0, 0, 0)
        assert arc["epoch"] >= epochs[-1]
        assert (arc["status"], arc["left_out"], arc["samples"]) == ("ok", 0, [])
    assert right["sums"]["tuples"] > 40
    assert right["days"]["tuples"] >= 1
    earlier = told("--arc", "sums", "--as-of", str(epochs[1]), status=0)["sums"]
    assert 0 < earlier["tuples"] < right["sums"]["tuples"]

    kind, (partition, there) = plan.topology.arcs["sums"], held(running, "sums", "most")
    one, other = there[:1], there[1:2]
    nothing = [pl.lit(None, f.dtype).alias(frames.AFTER + n) for n, f in kind.fields.items()]
    before = [pl.col(frames.AFTER + name).alias(frames.BEFORE + name) for name in kind.fields]
    altered = with_one_more(one, kind, "most")
    deleted = other.with_columns(before).with_columns(
        pl.lit(frames.DELETE, pl.UInt8).alias("op"), *nothing
    )
    running.write("sums", partition, altered)
    running.write("sums", partition, deleted.with_columns(pl.col("epoch") + 1))

    found = told("--arc", "sums", status=1)["sums"]
    assert wrong(found) == (1, 0, 1)
    assert (found["status"], found["tuples"]) == ("differs", right["sums"]["tuples"] - 1)
    names = ("product", "window_start")
    by_status = {sample["status"]: sample for sample in found["samples"]}
    assert set(by_status) == {"different", "missing"}
    assert by_status["different"] == {
        "status": "different",
        "identity": {name: one[f"after.{name}"][0] for name in names},
        "fields": {"most": {"arc": one["after.most"][0] + 1, "recomputed": one["after.most"][0]}},
    }
    assert by_status["missing"]["identity"] == {name: other[f"after.{name}"][0] for name in names}
    assert by_status["missing"]["fields"]["most"]["arc"] is None


@pytest.mark.kafka
@pytest.mark.spark
@on_spark
@pytest.mark.parametrize("running", [JOINED], ids=["joined"], indirect=True)
def test_joins_that_are_right_are_found_right_and_one_pair_altered_by_hand_is_found(
    running: Running, told: Told
) -> None:
    for hour in (0, 6, 3):
        running.send(60, hour)
        running.settle()
    arcs = ("--arc", "met", "--arc", "each")
    right = told(*arcs, status=0)
    assert {arc: wrong(line) for arc, line in right.items()} == dict.fromkeys(right, (0, 0, 0))
    assert {arc: line["left_out"] for arc, line in right.items()} == {"met": 0, "each": 0}
    assert (right["met"]["tuples"], right["each"]["tuples"]) == (2, len(running.live))

    partition, there = held(running, "each", "below")
    one, kind = there[:1], running.worker.plan.topology.arcs["each"]
    running.write("each", partition, with_one_more(one, kind, "below"))
    found = told(*arcs, status=1)
    assert (wrong(found["met"]), wrong(found["each"])) == ((0, 0, 0), (0, 0, 1))
    (sample,) = found["each"]["samples"]
    below = one["after.below"][0]
    assert sample["fields"] == {"below": {"arc": below + 1, "recomputed": below}}
