"""A watermark that ran ahead is put back, where jobs on Spark ingest the source and read it."""

import json
import time
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import polars as pl
import pytest

from errata import Network, tumbling
from errata.cli import watermark
from errata.deploy.deployment import open_network
from errata.observe.network_progress import current
from errata.processors.plan.deployed import declare_end
from errata.processors.tasks.rebuild import recompute
from errata.processors.wire.report import FOREVER
from errata.run.beside import Beside
from errata.settings.place import Place
from errata.spark_jobs.run import Options, jobs_of, run_jobs
from errata.topics.admin import create_topics
from errata.topics.settings import TopicSpec
from tests.spark_jobs.test_network import await_all, shared_of
from tests.spark_jobs.test_streaming import Seen, session

__all__ = ["session"]

HOUR_MS, DAY_MS, LIMIT_S = 3_600_000, 86_400_000, 120.0


def network() -> Network:
    net = Network("lowered", place="spark")
    trades = net.source(
        "trades", topic="lowered.feed", format="json", event_time="at", identity=["key"], keep="2d",
        fields={"key": "string", "at": "timestamp-millis", "n": "long"}, max_ahead="1000d",
    )  # fmt: skip
    sums = trades.aggregate("sums", by=[], window=tumbling("1h"), total="sum(n)", keep="2d")
    sums.map("doubled", double="total * 2", keep="2d")
    return net


def waited(what: Callable[[], Any]) -> Any:
    deadline = monotonic() + LIMIT_S
    while not (found := what()):
        assert monotonic() < deadline
        sleep(0.2)
    return found


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PySpark's sockets
def test_results_of_windows_that_closed_early_are_deleted_and_come_again(
    session, broker, cluster, tmp_path
):
    create_topics(broker.settings, [TopicSpec("lowered.feed", 1)])
    now_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    place, over, failed = Place(broker.settings, tmp_path / "state"), Event(), []

    def send(key: str, at: int, n: int, op: str = "insert") -> None:
        side = {"key": key, "at": at, "n": n}
        line = {"op": op, "before" if op == "delete" else "after": side}
        cluster.send("lowered.feed", partition=0, key=None, value=json.dumps(line).encode())
        cluster.flush()

    for hour in range(1, 5):
        send(f"k{hour}", now_ms - hour * HOUR_MS, hour)
    net = network()
    deployment = open_network(net, place)
    beside = Beside(net, place)
    plan = deployment.plan
    seen = Seen(broker.settings, plan)

    def run() -> None:
        try:
            run_jobs(
                shared_of(plan, broker.settings), jobs_of(plan, ()), session=session,
                kafka=broker.settings, options=Options(folder=str(tmp_path / "spark")),
                stop=over.is_set,
            )  # fmt: skip
        except BaseException as error:
            failed.append(error)
            raise

    def starts(arc: str) -> list[int]:
        return sorted(seen.content(arc)["window_start"].to_list())

    def report() -> Any:
        seen.view.poll()
        return seen.view.of("ingest.trades.0")

    driver = Thread(target=run)
    driver.start()
    try:
        hours = [now_ms - hour * HOUR_MS for hour in (4, 3, 2, 1)]
        waited(lambda: starts("doubled") == hours[:3])
        send("far", now_ms + 100 * DAY_MS, 7)
        waited(lambda: report().believed is not None and starts("doubled") == hours)
        send("late", hours[3] + 1, 100)  # older than keep
        waited(lambda: report().counts.get("refused.older than keep"))
        view = current(deployment.cluster, plan)
        restored = hours[3] + 1
        watermark._restore(deployment, view, "trades", restored)
        assert watermark.send_again(deployment, view, plan.topology.sources["trades"]) == 1
        view.close()
        waited(lambda: starts("sums") == starts("doubled") == hours[:3])
        send("far", now_ms + 100 * DAY_MS, 7, op="delete")
        send("k0", now_ms + 1, 5)
        waited(lambda: starts("sums") == starts("doubled") == hours)
        assert report().lowered > 0
        declare_end(cluster, plan, "trades")
        await_all(seen.view)
    finally:
        over.set()
        driver.join()
        beside.close()
        deployment.cluster.close()
    assert not failed
    contents = {"trades": seen.content("trades")}
    assert sorted(contents["trades"]["key"]) == ["k0", "k1", "k2", "k3", "k4", "late"]
    for scope in plan.topology.scopes.values():
        inputs = {arc: contents[arc] for arc in scope.inputs}
        made, _ = recompute(plan, scope, inputs, epoch=0, watermark=FOREVER)
        contents |= made
    found = seen.content("sums").sort("window_start")
    assert found["total"].to_list() == [4, 3, 2, 101, 5]
    shown = plan.topology.arcs["sums"].visible
    assert found.select(shown).equals(contents["sums"].sort("window_start").select(shown))
    assert isinstance(found, pl.DataFrame)
    seen.cluster.close()
