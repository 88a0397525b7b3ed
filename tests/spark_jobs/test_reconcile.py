"""The audit: what is compared; and a whole network on Kafka and Spark."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from errata.cli.reconcile import samples
from errata.loading import load
from errata.worker import Place, Worker
from processors.desk import unpack
from schemas import revisions as frames
from schemas.arc import Arc
from schemas.fields import FieldType, physical
from spark_jobs.as_of import Bound
from spark_jobs.recompute import Division
from spark_jobs.reconcile import MADE, SAID, Comparison, Finding
from tests.errata.conftest import Errata, environ, errata  # noqa: F401  fixtures
from tests.spark_jobs.at_work import at_work
from tests.spark_jobs.audited import TAPE, Running
from tests.spark_jobs.kept import Kept
from topics.broker import EmbeddedBroker
from topics.create import create_topics
from topics.kafka import KafkaCluster
from topics.settings import TopicSpec

FIELDS = {name: FieldType.parse(kind) for name, kind in (
    ("k", "string"), ("at", "timestamp-millis"), ("n", "long?"), ("d", "decimal(30,2)"),
    ("x", "double"), ("__hidden", "long"),
)}  # fmt: skip
ARC = Arc("a", FIELDS, identity=("k",), event_time="at", partition_by=("k",))


def tuples(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=physical(FIELDS), orient="row")


def found(said: pl.DataFrame, made: pl.DataFrame, bound: Bound | None = None) -> dict[str, int]:
    row = Comparison(ARC, bound or Bound(), 10).found(said, made)
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
    for side, some in ((SAID, [a, b]), (MADE, [b]), (MADE, [c])):
        division = Division(((),), ARC, ("k",), tuple(comparison.columns), 1, side)
        rows += division.rows(tuples(*some))
    (row,) = comparison(pa.Table.from_batches(rows)).to_pylist()
    samples = unpack(row.pop("samples"))
    assert row == {"tuples": 2, "left_out": 0, "insert": 1, "delete": 1, "replace": 0}
    assert samples["before.k"].drop_nulls().to_list() == ["a"]
    assert samples["after.k"].drop_nulls().to_list() == ["c"]


def test_as_many_differences_are_told_as_were_asked_for() -> None:
    made = tuples(*((f"{key}", 1, 5, 7, 0.5, 0) for key in range(5)))
    row = Comparison(ARC, Bound(), 2).found(tuples(), made)
    assert (row["insert"], unpack(row["samples"]).height) == (5, 2)


def test_of_a_different_tuple_the_fields_that_differ_are_told() -> None:
    made, said = ("a", 1, 5, 7, math.nan, 0), ("a", 1, None, 7, math.nan, 3)
    row = Comparison(ARC, Bound(), 2).found(tuples(said), tuples(made))
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
def running(tmp_path: Path, broker: EmbeddedBroker, cluster: KafkaCluster) -> Iterator[Running]:
    path = tmp_path / "tape.py"
    path.write_text(TAPE)
    create_topics(broker.settings, [TopicSpec("audited-trades", 2)])
    worker = Worker(load(str(path)), Place(dict(broker.settings), tmp_path / "state"))
    for scope in ("ingest.trades", *worker.plan.scopes):
        worker.add_scope(scope)
    worker.add_sweepers()
    with at_work(worker):
        yield Running(cluster, worker)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open
def test_an_arc_that_is_right_is_found_right_and_one_record_altered_by_hand_is_found(
    running: Running,
    broker: EmbeddedBroker,
    spark: Any,
    errata: Errata,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setattr("errata.cli.reconcile.open_session", lambda **_: Kept(spark))

    def told(*arguments: str, status: int) -> dict[str, dict[str, Any]]:
        done = errata("reconcile", "tape.py", "--json", *arguments)
        assert done.status == status, done.err
        return {line["arc"]: line for line in map(json.loads, done.out.splitlines())}

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
        assert (arc["missing"], arc["unexpected"], arc["different"]) == (0, 0, 0)
        assert arc["epoch"] >= epochs[-1]
        assert (arc["status"], arc["left_out"], arc["samples"]) == ("ok", 0, [])
    assert right["sums"]["tuples"] > 40
    assert right["days"]["tuples"] >= 1
    earlier = told("--arc", "sums", "--as-of", str(epochs[1]), status=0)["sums"]
    assert 0 < earlier["tuples"] < right["sums"]["tuples"]

    partition, held = next(
        (p, held) for p, held in enumerate(running.believed(plan, "sums")) if held.height
    )
    kind = plan.arcs["sums"]
    there = frames.last(held, kind.identity).filter(pl.col("op") != frames.DELETE)
    one, other = there[:1], there[1:2]
    nothing = [pl.lit(None, f.dtype).alias(frames.AFTER + n) for n, f in kind.fields.items()]
    before = [pl.col(frames.AFTER + name).alias(frames.BEFORE + name) for name in kind.fields]
    altered = one.with_columns(
        pl.lit(frames.REPLACE, pl.UInt8).alias("op"), *before, pl.col("after.most") + 1
    )
    deleted = other.with_columns(before).with_columns(
        pl.lit(frames.DELETE, pl.UInt8).alias("op"), *nothing
    )
    running.write("sums", partition, altered)
    running.write("sums", partition, deleted.with_columns(pl.col("epoch") + 1))

    wrong = told("--arc", "sums", status=1)["sums"]
    assert (wrong["missing"], wrong["unexpected"], wrong["different"]) == (1, 0, 1)
    assert (wrong["status"], wrong["tuples"]) == ("differs", right["sums"]["tuples"] - 1)
    names = ("product", "window_start")
    by_status = {sample["status"]: sample for sample in wrong["samples"]}
    assert set(by_status) == {"different", "missing"}
    assert by_status["different"] == {
        "status": "different",
        "identity": {name: one[f"after.{name}"][0] for name in names},
        "fields": {"most": {"arc": one["after.most"][0] + 1, "recomputed": one["after.most"][0]}},
    }
    assert by_status["missing"]["identity"] == {name: other[f"after.{name}"][0] for name in names}
    assert by_status["missing"]["fields"]["most"]["arc"] is None
