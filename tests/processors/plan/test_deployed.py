"""The plan topic with foreign records in it: the newest readable one counts, and is restored."""

import json
from itertools import product

import pytest

from errata import Network, tumbling
from errata.observe.diagnosis import complaints
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import (
    announce,
    declare_end,
    deploy,
    plan_spec,
    read_plan,
    restore_records,
)
from errata.processors.wire.plan_records import PlanRecordError
from errata.testing import Driver
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from tests.plans import with_deployment

MINUTE = 60_000
GARBAGE = [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"version": 99}']
NO_PLANS = [
    json.dumps({"version": 99, "first_epoch": 0, "deployment": "x", "generations": {}} | more)
    for more in (
        {"plan": {}},
        {"plan": {"network": "tape"}},
        {"plan": {"network": "tape", "sources": [], "arcs": {}, "boxes": {}}},
    )
]


def network(name: str = "tape") -> Network:
    net = Network(name)
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)")
    return net


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create(plan_spec("tape").name, 1)
    cluster.create("trades", 1)
    return cluster


@pytest.fixture
def plan():
    return compile_network(network()).placed({"trades": 1})


def write(cluster: MemoryCluster, key: bytes, value: bytes | str | None) -> None:
    value = value.encode() if isinstance(value, str) else value
    cluster.send("tape.plan", partition=0, key=key, value=value)


@pytest.mark.parametrize("value", [*GARBAGE, *NO_PLANS])
def test_the_newest_readable_plan_counts_and_is_written_again(cluster, plan, value) -> None:
    before = deploy(cluster, plan)
    write(cluster, b"plan", value)
    assert read_plan(cluster, "tape") == before
    assert deploy(cluster, plan) == before
    assert restore_records(cluster, "tape") == ["plan"]
    assert restore_records(cluster, "tape") == []
    cluster.compact("tape.plan", horizons=[2**40])
    assert read_plan(cluster, "tape") == before


def test_the_plan_of_another_network_does_not_count(cluster, plan) -> None:
    before = deploy(cluster, plan)
    other = before.description | {"network": "other"}
    record = {"version": 9, "first_epoch": 0, "deployment": "x", "generations": {}, "plan": other}
    write(cluster, b"plan", json.dumps(record))
    assert read_plan(cluster, "tape") == before


def test_a_plan_of_which_nothing_readable_is_left_is_an_error_and_not_a_first_deploy(
    cluster, plan
) -> None:
    deploy(cluster, plan)
    write(cluster, b"plan", b"{")
    cluster.compact("tape.plan", horizons=[2**40])
    with pytest.raises(PlanRecordError, match=r"'tape.plan' .* none that can be read; restore"):
        deploy(cluster, plan)


def test_an_announcement_and_an_end_survive_garbage_behind_them(cluster, plan) -> None:
    deploy(cluster, plan)
    cluster.send("trades", partition=0, key=None, value=b"x")
    declare_end(cluster, plan, "trades")
    announce(cluster, with_deployment(plan, version=2))
    for key in (b"switch", b"end.trades", b"end.other"):
        write(cluster, key, b"garbage")
    assert read_plan(cluster, "tape").switching_to == 2
    assert restore_records(cluster, "tape") == ["end.other", "end.trades", "switch"]
    cluster.compact("tape.plan", horizons=[2**40])
    assert read_plan(cluster, "tape").switching_to == 2
    records = cluster.reader({TopicPartition("tape.plan", 0): 0}).poll()
    values = {k: v for r in records for k, v in zip(r.keys, r.values, strict=True)}
    assert values[b"end.trades"] == b'{"0": 1}'


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *product([b"plan", b"switch", b"end.trades"], GARBAGE[:-1]),
        (b"plan", NO_PLANS[0]),  # under `switch` it is an announcement of version 99
        (b"end.trades", NO_PLANS[0]),
    ],
)
def test_a_running_network_goes_on_and_its_status_names_the_record(key, value) -> None:
    with Driver(network("live")) as driver:
        row = {"key": "a", "at": MINUTE, "price": 1}
        driver.send("trades", {"op": "insert", "after": row})
        driver.close_epoch()
        raw = value.encode() if isinstance(value, str) else value
        driver.cluster.send("live.plan", partition=0, key=key, value=raw)
        driver.send("trades", {"op": "insert", "after": row | {"key": "b"}})
        driver.close_epoch()
        view = driver.shared.view
        assert view.version == 1
        (complaint,) = complaints(view, {}, now_ms=0)
        assert complaint.task == "live.plan"
        assert f"record '{key.decode()}' of the plan topic can't be read" in complaint.reason
        driver.end()
        assert [each["total"] for each in driver.table("sums")] == [2]
