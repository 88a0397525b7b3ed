"""How often ingest tasks stamp epochs: at the multiples of an interval, so that they meet."""

import json
from contextlib import ExitStack, contextmanager

import pytest

from errata import Network
from errata.processors.compile.compiler import compile_network
from errata.processors.ingest.ingest_task import IngestTask
from errata.processors.plan.deployed import topic_specs
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

FIELDS = {"key": "string", "at": "timestamp-millis"}
TASKS, UNTIL_MS = 3, 1_200


@contextmanager
def world(folder, interval_ms, now):
    net = Network("paced")
    net.source("trades", topic="feed", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    plan = compile_network(net).placed({"trades": TASKS})
    cluster = MemoryCluster(clock_ms=lambda: now[0])
    for spec in topic_specs(plan, compaction_lag_ms=2**60):
        cluster.create(spec.name, spec.partitions)
    cluster.create("feed", TASKS)
    shared = Shared(
        cluster, plan, SchemaRegistry(cluster), View(cluster, plan=plan), 2**60,
        interval_ms=interval_ms,
    )  # fmt: skip
    with ExitStack() as stack:
        lives = []
        for number in range(TASKS):
            task = IngestTask(
                shared, plan.topology.sources["trades"], partition=number,
                folder=folder / str(number), clock_ms=lambda: now[0],
            )  # fmt: skip
            lives.append((task, task.steps()))
            stack.callback(lives[-1][1].close)
            while not task.started:
                next(lives[-1][1])
        yield cluster, lives


@pytest.mark.parametrize("interval_ms", [50, 200, 400])
def test_tasks_with_input_stamp_the_same_epochs_one_an_interval(tmp_path, interval_ms):
    now, epochs = [10_000_000], {number: set() for number in range(TASKS)}
    with world(tmp_path, interval_ms, now) as (cluster, lives):
        commits = 0
        for ms in range(UNTIL_MS):
            now[0] += 1
            number = ms % TASKS
            value = {"op": "insert", "after": {"key": f"{ms}", "at": now[0]}}
            if ms >= number * 70:  # each begins at another time
                cluster.send("feed", partition=number, key=None, value=json.dumps(value).encode())
            for number, (task, life) in enumerate(lives):
                before = task.report
                while next(life):
                    pass
                commits += task.report is not before
                epochs[number].add(task.report.done)
    assert epochs[0] == epochs[1] == epochs[2]
    assert commits <= TASKS * (UNTIL_MS // interval_ms + 2)
    assert len(epochs[0]) >= UNTIL_MS // interval_ms


def test_tasks_of_a_process_share_an_epoch_while_the_clock_runs_on(tmp_path):
    now, epochs = [10_000_000], {number: set() for number in range(TASKS)}
    with world(tmp_path, 50, now) as (cluster, lives):
        for round_number in range(5):
            for number in range(TASKS):
                value = {"op": "insert", "after": {"key": f"{round_number}", "at": now[0]}}
                record = json.dumps(value).encode()
                cluster.send("feed", partition=number, key=None, value=record)
            has_work = True
            while has_work:
                has_work = False
                for number, (task, life) in enumerate(lives):
                    now[0] += 60
                    has_work |= next(life)
                    epochs[number].add(task.report.done)
    assert epochs[0] == epochs[1] == epochs[2]
    assert len(epochs[0] - {-1}) == 5


def test_a_record_after_a_quiet_time_is_stamped_at_once(tmp_path):
    now = [10_000_000]
    with world(tmp_path, 400, now) as (cluster, [(task, life), *_]):
        now[0] += 1_000
        value = {"op": "insert", "after": {"key": "a", "at": now[0]}}
        cluster.send("feed", partition=0, key=None, value=json.dumps(value).encode())
        while next(life):
            pass
        assert task.report.done == now[0] // 50
