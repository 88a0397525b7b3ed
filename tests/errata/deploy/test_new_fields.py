"""Sources of a deployed network that gain fields: what is refused, and a roll in memory."""

import json
from itertools import count, islice

import pytest

from errata import Network, tumbling
from errata.deploy.source_fields import before_and_after, resolve_deployed
from errata.deploy.versions import new_fields, next_version, plan_next
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.faults import NetworkError
from errata.processors.plan.deployed import (
    PlanMismatchError,
    as_deployed,
    declare_end,
    deploy,
    read_plan,
    topic_specs,
)
from errata.processors.plan.plan import Plan
from errata.processors.tasks import subjects
from errata.processors.wire.report import FOREVER
from errata.run.switch import Switch
from errata.schemas.avro import tuple_schema
from errata.schemas.fields import FieldType
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.errata.run.test_switch import LAG_MS, Running

OLD = {"key": "string", "at": "timestamp-millis", "desk": "string", "price": "long"}
NEW = {"key": "string", "fee": "long?", "at": "timestamp-millis", "desk": "string", "price": "long"}
PASSED_ON = ("trades", "real", "real-sink.exchange")


def network(fields, *, keep="1d", more=False) -> Network:
    net = Network("wider")
    identity = None if fields is None else ["key"]
    trades = net.source(
        "trades", topic="in", fields=fields, identity=identity, event_time="at", keep=keep,
        format="json" if fields else "avro", envelope="native" if fields else "append",
    )  # fmt: skip
    if keep:
        real = trades.where("real", "price > 0", keep="1d")
        by = {"by": ["desk"], "window": tumbling("1m"), "keep": "1d"}
        real.aggregate("up", mode="upstream", total="sum(price)", **by)
        real.aggregate("down", mode="downstream", scope="down", total="sum(price)", **by)
        real.sink("out", envelope="upsert")
        if more:
            trades.map("paid", paid="price + fee")
    return net


def plan(net: Network) -> Plan:
    return compile_network(net).placed({"trades": 2})


def in_memory() -> MemoryCluster:
    ticks = count(1_000_000, 60)
    return MemoryCluster(clock_ms=lambda: next(ticks))


def make(cluster: MemoryCluster, made: Plan) -> None:
    for spec in topic_specs(made, compaction_lag_ms=LAG_MS):
        cluster.create(spec.name, spec.partitions)


def deployed(cluster: MemoryCluster, net: Network) -> Plan:
    made = plan(net)
    make(cluster, made)
    cluster.create("in", 2)
    subjects.register(made, SchemaRegistry(cluster))
    return as_deployed(made, deploy(cluster, made))


@pytest.fixture
def coming_to():
    """What would be deployed on a cluster in memory."""
    return lambda cluster, net: plan_next(net, cluster, SchemaRegistry(cluster))


def test_a_new_optional_field_makes_a_version_with_new_topics_for_all_arcs_that_pass_it_on(
    coming_to,
):
    cluster = in_memory()
    there = deployed(cluster, network(OLD))
    found = coming_to(cluster, network(NEW))
    assert found.old.fingerprint == there.fingerprint
    assert list(found.old.topology.arcs["trades"].fields) == list(OLD)
    assert [str(change) for change in found.changes] == ["field 'trades.fee': None -> long?"]
    assert found.plan.deployment.generations == dict.fromkeys(PASSED_ON, 2)
    assert coming_to(cluster, network(OLD)).changes == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fee": "long"}, r"'trades' is deployed without field 'fee'.*declare it as 'long\?'"),
        ({"price": "int"}, r"another plan .*arcs 'trades' differ\); run"),
        ({"price": "int", "fee": "long?"}, r"another plan .*arcs 'trades' differ\); run"),
    ],
)
def test_other_changes_of_fields_are_refused(coming_to, change, told):
    cluster = in_memory()
    deployed(cluster, network(OLD))
    with pytest.raises(PlanMismatchError, match=told):
        coming_to(cluster, network(OLD | change))


def test_a_field_that_is_gone_is_refused(coming_to):
    cluster = in_memory()
    deployed(cluster, network(NEW))
    with pytest.raises(PlanMismatchError, match="arcs 'trades' differ"):
        coming_to(cluster, network(OLD))


def test_boxes_that_use_a_new_field_come_after_it(coming_to):
    cluster = in_memory()
    deployed(cluster, network(OLD))
    with pytest.raises(PlanMismatchError, match=r"new boxes \(paid\); take the boxes out"):
        coming_to(cluster, network(NEW, more=True))


def test_a_source_without_history_gains_no_field():
    old, new = (plan(network(fields, keep=None)) for fields in (OLD, NEW))
    assert len(new_fields(old, new)) == 1
    with pytest.raises(PlanMismatchError, match="can be moved to a topic with more fields"):
        next_version(old, new)


def test_processes_with_a_new_field_are_told_to_deploy_it():
    cluster = in_memory()
    deployed(cluster, network(OLD))
    there = read_plan(cluster, "wider")
    with pytest.raises(PlanMismatchError, match="`errata deploy` adds them"):
        as_deployed(plan(network(NEW)), there)


def test_fields_in_another_order_are_refused_since_nothing_would_be_read(coming_to):
    cluster = in_memory()
    deployed(cluster, network(OLD))
    with pytest.raises(PlanMismatchError, match="in another order, key, at, desk, price; declare"):
        coming_to(cluster, network(dict(reversed(OLD.items()))))
    wider = {"fee": "long?"} | dict(reversed(OLD.items()))  # its old topics are read, too
    assert list(coming_to(cluster, network(wider)).old.topology.arcs["trades"].fields) == list(OLD)


def registered(cluster: MemoryCluster, fields) -> SchemaRegistry:
    """The registry after a producer has registered its schema."""
    registry = SchemaRegistry(cluster)
    kinds = {name: FieldType.parse(kind) for name, kind in fields.items()}
    registry.register("in-value", tuple_schema("Trade", kinds))
    registry.register("in-key", tuple_schema("Key", {"key": kinds["key"]}))
    return registry


def test_what_a_source_lacks_is_told_before_anything_is_there():
    cluster = in_memory()
    with pytest.raises(NetworkError, match=r"trades .*: needs fields, declared or"):
        resolve_deployed(network(None), SchemaRegistry(cluster), cluster)
    net = Network("wider")
    net.source("trades", fields=OLD, identity=["key"], format="protobuf")
    told = "needs a schema registry, for format='protobuf'; found none that is configured; set SCH"
    with pytest.raises(NetworkError, match=rf"trades .test_new_fields.py:.*: {told}"):
        resolve_deployed(net, SchemaRegistry(cluster), cluster)


def test_a_source_that_declares_no_fields_has_those_that_are_deployed_until_the_next_deploy():
    cluster = in_memory()
    cluster.create("_errata_schemas", 1)
    registry = registered(cluster, OLD)
    declared = network(None)
    deployed(cluster, resolve_deployed(declared, registry, cluster))
    there = read_plan(cluster, "wider")
    later = {"fee": "long", "at": "timestamp-millis", "desk": "string", "key": "string"}
    registered(cluster, later)  # the price is gone, another order, and a field more
    runs = resolve_deployed(declared, registry, cluster).declarations["trades"]
    assert {name: str(kind) for name, kind in runs.fields.items()} == OLD
    assert list(runs.fields) == list(OLD)
    before, after = before_and_after(declared, registry, there)
    assert list(before.declarations["trades"].fields) == list(OLD)
    assert {n: str(k) for n, k in after.declarations["trades"].fields.items()} == NEW


@pytest.mark.parametrize("cut", [0, 3, 12, 25, 40])
def test_a_network_whose_source_gains_a_field_gives_what_a_recomputation_gives(
    tmp_path, coming_to, cut
):
    cluster = in_memory()
    old = deployed(cluster, network(OLD))
    rows = dict[str, dict]()

    def send(number: int, op: str, **values) -> None:
        key = f"k{number}"
        line = {"op": op} | ({} if op == "insert" else {"before": rows[key]})
        rows[key] = {"key": key, "at": number, "desk": "xy"[number % 2], **values}
        value = json.dumps(line | {"after": rows[key]}).encode()
        cluster.send("in", partition=number % 2, key=None, value=value)

    for number in range(20):  # the producer has the field already, the network hasn't
        send(number, "insert", price=number, **({"fee": 9} if number % 3 else {}))
    before = Running(cluster, old, tmp_path / "old")
    before.run(lambda: before.table("trades").height == 20)
    found = coming_to(cluster, network(NEW))
    make(cluster, found.plan)
    if cut:  # a deploy that dies is run again, and finds the same to do
        life = Switch(before.shared, Running(cluster, found.plan, tmp_path / "cut").shared,
                      before.scopes).run_once()  # fmt: skip
        assert sum(1 for _ in islice(life, cut)) == cut
        life.close()
        assert coming_to(cluster, network(NEW)).plan.fingerprint == found.plan.fingerprint
        before = Running(cluster, old, tmp_path / "again")
    after = Running(cluster, found.plan, tmp_path / "new")
    switch = Switch(before.shared, after.shared, before.scopes)
    for _ in switch.run():
        pass
    assert cut or switch.copied == {"trades": 20, "real": 19}

    wanted = {key: row | {"fee": None} for key, row in rows.items()}
    for number in range(0, 30, 2):  # some come again, with it or without
        more = {"fee": number} if number % 4 else {}
        send(number, "replace" if number < 20 else "insert", price=100 + number, **more)
        wanted[f"k{number}"] = {"fee": None} | rows[f"k{number}"]
    declare_end(cluster, found.plan, "trades")
    tasks = [
        task
        for box in ("up", "down")
        for task in found.plan.placement.tasks(found.plan.topology.scope_of(box))
    ]
    view = after.shared.view
    after.run(lambda: all(view.of(task).watermark == FOREVER for task in tasks))

    for arc in ("trades", "real"):
        there = {row["key"]: row for row in after.table(arc).select(list(NEW)).to_dicts()}
        assert there == {k: row for k, row in wanted.items() if arc == "trades" or row["price"]}
    totals = {desk: 0 for desk in "xy"}
    for row in wanted.values():
        totals[row["desk"]] += row["price"]
    for arc in ("up", "down"):
        assert dict(after.table(arc).select("desk", "total").iter_rows()) == totals
