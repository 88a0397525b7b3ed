"""A plan read back from its description answers as the plan itself does."""

from dataclasses import replace
from typing import Any

import pytest

from errata import Network, hopping, tumbling
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import NotDeployedError, require_plan, topic_specs, write_plan
from errata.processors.plan.plan import ForeignSchemaError, NoSuchArcError, Plan
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import NEVER, Report
from errata.schemas.avro import RevisionCodec
from errata.topics import names
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.laws.random_networks import random_shape
from tests.plans import with_deployment

TYPES = {"zone": "string", "at": "timestamp-millis", "amount": "decimal(38,10)?", "n": "long"}


def network() -> Network:
    net = Network("tape")
    options: dict[str, Any] = {"fields": TYPES, "identity": ["zone"], "event_time": "at"}
    one = net.source("one", **options, keep="10y", partitions=3)
    two = net.source("two", **options, keep="10y", partitions=3, rekey=True)
    both = net.union("both", one.where("few", "n < 10"), two)
    both.aggregate(
        "sums", by=["n"], window=tumbling("1h"), total="sum(n)", keep="10y", place="spark"
    )
    both.aggregate("counts", by=["zone"], window=tumbling("1h"), many="count(*)", partitions=2)
    one.where("inside", "n > 10").map("outside", more="n + 1")
    return net


def placed(net: Network, **options: Any) -> CompiledPlan:
    plan = compile_network(net, **options)
    return plan.placed(dict.fromkeys(plan.topology.sources, 2))


def through_the_topic(plan: CompiledPlan) -> tuple[MemoryCluster, Plan]:
    cluster = MemoryCluster()
    for spec in topic_specs(plan, compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    write_plan(cluster, plan, first_epoch=0)
    return cluster, require_plan(cluster, plan.network).plan


def answers(plan: Plan) -> dict[str, Any]:
    """Return what readers of reports and arcs ask a plan."""
    topology, placement, deployment = plan.topology, plan.placement, plan.deployment
    return {
        "description": plan.describe(),
        "tasks": {scope: placement.tasks(scope) for scope in topology.all_scopes},
        "scopes": topology.scopes,
        "topics": {arc: deployment.topic(arc) for arc in topology.topics},
        "written by": {arc: topology.scope_of(arc) for arc in topology.topics},
        "reads": topology.reads,
        "sources": topology.sources_of,
        "moved": topology.moved,
        "arcs": {n: replace(arc, event_time_shift_ms=0) for n, arc in topology.arcs.items()},
        "sinks": [replace(sink, place=None) for sink in topology.sinks],
        "name": (deployment, plan.fingerprint),
    }


def test_rekeyed_sources_exchanges_unions_and_jobs_on_spark_are_read_back():
    plan = with_deployment(placed(network()), version=2, id="d", generations={"one": 2})
    assert answers(through_the_topic(plan)[1]) == answers(plan)


@pytest.mark.parametrize("seed", range(15))
def test_a_random_network_is_read_back(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed = "tests.laws.random_networks.compile_network"  # not that of the driver: every arc
    monkeypatch.setattr(deployed, lambda net, every_arc: compile_network(net))
    plan = random_shape(seed, spark=seed % 2 == 1).plan
    assert answers(through_the_topic(plan)[1]) == answers(plan)


def test_a_view_of_what_is_read_back_knows_who_writes_and_how_far_all_is_complete():
    plan = placed(network())
    cluster, found = through_the_topic(plan)
    views = View(cluster, plan=plan), View(cluster, plan=found)
    for view in views:
        for task, epoch in (("ingest.one.0", 7), ("ingest.one.1", 5), ("ingest.two.0", 9)):
            view.note(Report(task, attempt=1, done=epoch, watermarks=((1, 100),)))
    asked = [
        (arc, p) for arc in plan.topology.topics for p in range(plan.placement.partitions[arc])
    ]
    mine, theirs = ([(v.writers(*each), v.complete(*each)) for each in asked] for v in views)
    assert theirs == mine
    assert views[1].complete("one", 2) == (5, 0)
    assert [v.watermark("counts.0", upto=9) for v in views] == [NEVER, NEVER]


def test_the_fields_of_an_arc_are_in_the_order_of_its_records():
    plan = placed(network())
    cluster, found = through_the_topic(plan)
    registry = SchemaRegistry(cluster)
    codec = ArcCodec(plan.topology.arcs["one"], plan.deployment.topic("one"), registry)
    arc, ids = found.written("one", SchemaRegistry(cluster))
    assert list(found.topology.arcs["one"].fields) == sorted(TYPES) != list(TYPES)
    assert list(arc.fields.items()) == list(plan.topology.arcs["one"].fields.items())
    assert RevisionCodec(arc.name, arc.fields).schema == codec._values.schema
    assert ids == {
        f"tape.one-{part}": registry.latest(f"tape.one-{part}")[0] for part in ("key", "value")
    }


def test_a_registry_without_the_arcs_schema_or_with_another_one_is_refused():
    plan = placed(network())
    cluster, found = through_the_topic(plan)
    registry = SchemaRegistry(cluster)
    with pytest.raises(ForeignSchemaError, match=r"arc 'one' of network 'tape' are not in this"):
        found.written("one", registry)
    for part in ("key", "value"):
        registry.register(f"tape.one-{part}", {"type": "record", "name": "X", "fields": []})
    with pytest.raises(ForeignSchemaError, match="SCHEMA_REGISTRY_URL"):
        found.written("one", registry)


def test_only_arcs_with_a_topic_of_their_own_can_be_read_and_the_others_are_told_why():
    found = through_the_topic(placed(network()))[1]
    with pytest.raises(
        NoSuchArcError, match=r"no arc 'nine'; these can be read: (?!.*exchange).*one"
    ):
        found.readable("nine")
    with pytest.raises(NoSuchArcError, match="arc 'inside' stays inside the processes"):
        found.readable("inside")
    with pytest.raises(NoSuchArcError, match=r"two\.exchange"):
        found.readable("two.exchange")


def test_a_tuple_is_needed_as_long_as_its_windows_may_be_revised():
    net = Network("reach")
    fields = {"key": "string", "at": "timestamp-millis", "n": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    window = hopping("2h", every="1h")
    trades.aggregate("bars", by=["key"], window=window, s="sum(n)", keep="1d")
    hour_ms = 3_600_000
    assert compile_network(net).reach_ms == {"trades": 26 * hour_ms, "bars": 24 * hour_ms}


def test_a_network_that_is_not_deployed_is_named():
    cluster = MemoryCluster()
    with pytest.raises(NotDeployedError, match=r"'tape' is not deployed .* run `errata up`"):
        require_plan(cluster, "tape")
    cluster.create(names.plan_topic("tape"), 1)
    with pytest.raises(NotDeployedError, match="'tape' is not deployed"):
        require_plan(cluster, "tape")
