"""One epoch through a scope: which boxes run, in every order, and what they ask together."""

import gc
from dataclasses import replace
from unittest import mock

import polars as pl
import pytest

from errata import Network, tumbling
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.plan import Plan
from errata.processors.propagation.orders import ORDERS
from errata.processors.tasks.scope_run import EpochResult, Memory, ScopeRun
from errata.processors.wire.report import FOREVER
from errata.schemas import revisions as frames

FIELDS = {"key": "string", "at": "timestamp-millis", "x": "long"}
WINDOW = tumbling(10)


def source(net, name="a"):
    return net.source(name, fields=FIELDS, identity=["key"], event_time="at", keep="1d")


def two_sums():
    """Two aggregates, below filters that no tuple passes both of; a filter below the first."""
    net = Network("sums")
    a = source(net)
    for name, predicate in (("low", "x < 5"), ("high", "x >= 5")):
        sums = a.where(name, predicate).aggregate(
            f"sum_{name}", by=["key"], window=WINDOW, mode="upstream", total="sum(x)"
        )
    sums.where("large", "total > 100")
    return compile_network(net).placed({"a": 1})


def scope_run(plan: Plan, order: str) -> ScopeRun:
    (scope,) = plan.topology.scopes.values()
    return ScopeRun(plan, replace(scope, order=order), partition=0)


def begun(run: ScopeRun, watermark: int) -> Memory:
    live = {name: box.no_live() for name, box in run.stateful.items()}
    return Memory.of(run.stateful, live, done=0, watermark=watermark)


def inserted(*values: int) -> dict[str, pl.DataFrame]:
    """Return inserts at 3 ms."""
    rows = [{"key": f"{x}", "at": 3, "x": x} for x in values]
    after = pl.DataFrame(rows, schema={"key": pl.String, "at": pl.Int64, "x": pl.Int64})
    there = pl.repeat(True, len(rows), dtype=pl.Boolean, eager=True)
    return {"a": frames.between(after.clear(len(rows)), ~there, after, there)}


def epoch(run: ScopeRun, inputs, memory: Memory, watermark: int):
    return run.epoch(
        memory.done + 1, inputs, memory=memory, watermark=watermark, uncommitted={}, committed=0
    )


def ended(run: ScopeRun, *given) -> tuple[EpochResult, list[str]]:
    """Return what an epoch gives in which nobody asks, and the aggregates that ran."""
    ran, process = [], Aggregate.process

    def noted(box, *args, **more):
        ran.append(box.arc.name)
        return process(box, *args, **more)

    with mock.patch.object(Aggregate, "process", noted), pytest.raises(StopIteration) as end:
        next(epoch(run, *given))
    return end.value.value, ran


@pytest.mark.parametrize("order", ORDERS)
def test_an_aggregate_that_nothing_reaches_runs_in_the_static_order_only(order):
    run = scope_run(two_sums(), order)
    result, ran = ended(run, inserted(1), begun(run, 0), 0)
    assert sorted(ran) == (["sum_high", "sum_low"] if order == "static" else ["sum_low"])
    assert result.revisions.keys() == {"a", "low"}


@pytest.mark.parametrize("order", ORDERS)
def test_a_window_closes_while_others_have_input(order):
    run = scope_run(two_sums(), order)
    result, _ = ended(run, inserted(7), begun(run, 0), 0)
    assert run.closes(result.memory) == 10
    result, ran = ended(run, inserted(1), result.memory, 10)
    assert "sum_high" in ran
    assert result.revisions["sum_high"]["after.total"].to_list() == [7]
    assert run.closes(result.memory) == FOREVER


@pytest.mark.parametrize("order", ORDERS)
def test_what_boxes_lack_that_do_not_wait_for_one_another_is_asked_together(order):
    run = scope_run(two_sums(), order)
    life = epoch(run, inserted(1, 7), begun(run, 100), 100)  # the window closed long ago
    (asked,) = next(life)
    assert (asked.arc, {*asked.ranges["key"]}) == ("a", {"1", "7"})
    after = frames.entering(inserted(1, 7)["a"], list(FIELDS))
    asked.take(after)
    with pytest.raises(StopIteration) as end:
        life.send([after.clear()])
    counts = end.value.value.counts
    assert {name: counts[name] for name in counts if "re" in name} == {
        "sum_low.requests": 1, "sum_low.replayed": 1, "sum_low.revised": 1,
        "sum_high.shared": 1, "sum_high.replayed": 1, "sum_high.revised": 1,
    }  # fmt: skip


def test_an_epoch_that_replays_leaves_no_columns_to_the_garbage_collector():
    run, after = (
        scope_run(two_sums(), next(iter(ORDERS))),
        frames.entering(inserted(1, 7)["a"], [*FIELDS]),
    )
    gc.collect()
    gc.disable()
    try:
        life = epoch(run, inserted(1, 7), begun(run, 100), 100)
        (asked,) = next(life)
        asked.take(after)
        with pytest.raises(StopIteration):
            life.send([after.clear()])
        del life, asked
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [each for each in gc.garbage if isinstance(each, pl.DataFrame | pl.Series)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_what_a_task_has_emitted_itself_counts_once_whatever_parts_an_answer_has():
    net = Network("own")
    kept = source(net).where("kept", "x > 0", keep="1d")
    kept.aggregate("sums", by=["at"], window=WINDOW, mode="upstream", total="sum(x)")
    run = scope_run(compile_network(net).placed({"a": 1}), next(iter(ORDERS)))
    memory = begun(run, 100)
    own = {"kept": [inserted(5)["a"]]}
    life = run.epoch(2, inserted(7), memory=memory, watermark=100, uncommitted=own, committed=0)
    (asked,) = next(life)
    assert asked.arc == "kept"
    for x in (1, 2):  # of earlier epochs
        asked.take(frames.entering(inserted(x)["a"], [*FIELDS]))
    with pytest.raises(StopIteration) as end:
        life.send([frames.entering(inserted(7)["a"], [*FIELDS]).clear()])
    assert end.value.value.revisions["sums"][frames.AFTER + "total"].to_list() == [15]


def test_the_planner_goes_by_the_graph_of_a_scope():
    net = Network("orders")
    source(net, "a").where("alone", "x > 0")
    source(net, "b").where("first", "x > 0").map("second", y="x").map("third", y="x")
    wide = source(net, "c").where("top", "x > 0")
    for name in ("left", "middle", "right"):
        wide.map(name, y="x")
    plan = compile_network(net)
    found = {scope.boxes[0]: scope.order for scope in plan.topology.scopes.values()}
    assert found == {"alone": "static", "first": "hybrid", "top": "dynamic"}
