"""Sources that are bound to arcs of other networks, against what runs there."""

import pytest

from errata import Network, tumbling
from errata.deploy import bound_sources
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.faults import NetworkError
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import NotDeployedError, deploy, topic_specs
from errata.processors.tasks import subjects
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

FIELDS = {"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"}


def upper(**more) -> CompiledPlan:
    net = Network("upper")
    options = {"fields": FIELDS, "identity": ["key"], "event_time": "at", "keep": "1d"}
    prices = net.source("prices", **(options | {"partition_by": ["symbol"]} | more))
    prices.where("kept", "true", keep="2d")
    prices.where("passing", "price > 0")
    return compile_network(net).placed({"prices": 2})


def lower(**more) -> Network:
    net = Network("lower")
    options = {"topic": "upper.kept", "envelope": "arc", "event_time": "at", "keep": "1d"}
    prices = net.source("prices", **(options | more))
    prices.aggregate("sums", by=["symbol"], window=tumbling("1h"), total="sum(price)")
    return net


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def start(cluster: MemoryCluster, plan: CompiledPlan) -> SchemaRegistry:
    for spec in topic_specs(plan, compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    registry = SchemaRegistry(cluster)
    subjects.register(plan, registry)
    deploy(cluster, plan)
    return registry


def checked(cluster: MemoryCluster, registry: SchemaRegistry, net: Network) -> CompiledPlan:
    plan = compile_network(bound_sources.complete(net, registry, cluster)).placed({"prices": 2})
    bound_sources.check(plan, cluster)
    return plan


def test_what_it_does_not_declare_is_that_of_the_arc(cluster):
    registry = start(cluster, upper())
    source = checked(cluster, registry, lower()).topology.sources["prices"]
    assert list(source.arc.fields) == list(FIELDS)
    assert (source.arc.identity, source.arc.partition_by) == (("key",), ("symbol",))


def test_it_may_have_fewer_fields(cluster):
    registry = start(cluster, upper())
    few = {name: FIELDS[name] for name in ("price", "symbol", "at", "key")}
    assert list(checked(cluster, registry, lower(fields=few)).topology.arcs["prices"].fields) == [
        *few
    ]


def test_one_task_maps_all_its_partitions_and_its_topics_are_those_of_the_network_alone(cluster):
    plan = checked(cluster, start(cluster, upper()), lower())
    assert plan.placement.ingest_tasks() == ["ingest.prices.0"]
    assert plan.placement.partitions["prices"] == 2
    own = {spec.name for spec in topic_specs(plan, compaction_lag_ms=1)}
    assert not {name for name in own if name.startswith("upper.")}
    assert plan.deployment.topic("prices") == "upper.kept"
    assert not {name for name in subjects.planned(plan) if name.startswith("upper.")}


def results() -> CompiledPlan:
    net = Network("upper")
    options = {"fields": FIELDS, "identity": ["key"], "event_time": "at", "keep": "1d"}
    prices = net.source("prices", partition_by=["symbol"], **options)
    hours = prices.aggregate("hours", by=["symbol"], window=tumbling("1h"), n="count(*)", keep="2d")
    prices.aggregate("ever", by=["symbol"], window=None, emit="on_update", n="count(*)", keep="2d")
    hours.map("starts", window_end="window_end - interval 1 hour", keep="2d")
    net.join("both", {"p": prices, "h": hours}, on=["symbol"], price="p.price", n="h.n", keep="2d")
    return compile_network(net).placed({"prices": 2})


@pytest.mark.parametrize("arc", ["hours", "ever", "both"])
def test_its_event_time_is_that_of_the_arc_be_it_hidden_or_the_end_of_a_window(cluster, arc):
    registry, there = start(cluster, results()), results().topology.arcs[arc]
    net = Network("lower")
    net.source("prices", topic=f"upper.{arc}", envelope="arc", keep="1d").where("all", "true")
    here = checked(cluster, registry, net).topology.arcs["prices"]
    assert (here.event_time, here.event_time_shift_ms) == (
        there.event_time,
        there.event_time_shift_ms,
    )
    assert set(here.visible) == set(there.visible)


def test_a_window_end_that_is_no_end_is_named(cluster):
    registry, net = start(cluster, results()), Network("lower")
    net.source("prices", topic="upper.starts", envelope="arc", keep="1d").where("all", "true")
    with pytest.raises(NetworkError, match=r"network 'upper', window_end \+0 ms; found window_end"):
        checked(cluster, registry, net)


def test_a_network_that_is_not_deployed_is_named(cluster):
    with pytest.raises(NotDeployedError, match="'prices' is bound to an arc of network 'upper'"):
        bound_sources.complete(lower(), SchemaRegistry(cluster), cluster)


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ({"keep": "1h"}, "a keep= of 86400000 ms at least"),
        ({"keep": "3d"}, "to keep tuples of"),
        ({"partition_by": ["key"]}, "the partition_by of arc 'kept' of network 'upper'"),
        ({"identity": ["key", "symbol"]}, "the identity of arc 'kept'"),
        ({"fields": FIELDS | {"price": "int"}}, "int here, long there"),
        ({"fields": FIELDS | {"more": "int"}}, "int here, no such field there"),
        ({"event_time": "at + interval 1 hour"}, "the event_time of arc 'kept'"),
        ({"topic": "upper.price"}, "these can be read: kept, passing, prices"),
        ({"topic": "upper.kept.v2"}, "declare topic='upper.kept'"),
        ({"topic": "upper.passing"}, "declare it there"),
    ],
)
def test_one_that_does_not_fit_its_arc_is_refused(cluster, more, needed):
    registry = start(cluster, upper())
    with pytest.raises(NetworkError) as refused:
        checked(cluster, registry, lower(**more))
    assert needed in str(refused.value)


def test_an_arc_whose_tuples_may_be_revised_at_any_age_can_only_be_bound_without_keep(cluster):
    registry = start(cluster, upper(keep=None))
    with pytest.raises(NetworkError, match="leave keep= out"):
        checked(cluster, registry, lower())
    net = Network("lower")
    net.source("prices", topic="upper.kept", envelope="arc", event_time="at").where("all", "true")
    checked(cluster, registry, net)


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ({"rekey": True}, "no rekey for envelope 'arc'"),
        ({"idle_after": "1s"}, "no idle_after for envelope 'arc'"),
        ({"partitions": 3}, "no partitions for envelope 'arc'"),
        ({"start": "latest"}, "no start for envelope 'arc'"),
        ({"topic": "prices"}, "the topic of an arc"),
        ({"event_time": None}, "an event time"),
        ({"format": "json"}, "a format of avro"),
    ],
)
def test_what_is_settled_upstream_is_no_option_of_it(more, needed):
    with pytest.raises(NetworkError) as refused:
        compile_network(lower(fields=FIELDS, identity=["key"], **more))
    assert needed in str(refused.value)


def test_sinks_and_jobs_on_spark_need_a_box_before_it():
    net = Network("lower")
    prices = net.source(
        "prices", topic="upper.kept", envelope="arc", fields=FIELDS, identity=["key"],
        event_time="at", keep="1d",
    )  # fmt: skip
    prices.sink("out")
    window = tumbling("1h")
    prices.aggregate("sums", by=["symbol"], window=window, place="spark", total="sum(price)")
    with pytest.raises(NetworkError) as refused:
        compile_network(net)
    assert "a box before its sink" in str(refused.value)
    assert "a box with keep= between a box on Spark" in str(refused.value)
