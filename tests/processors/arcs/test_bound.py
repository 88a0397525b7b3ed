"""Reading the arc of another network while that one is deployed again, or taken away."""

from dataclasses import replace

import pytest

from errata import Network
from errata.processors.arcs import bound
from errata.processors.arcs.bound import Upstream, UpstreamError
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import deploy, read_plan, topic_specs, write_plan
from errata.processors.tasks import subjects
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.plans import with_deployment

FIELDS = {"key": "string", "at": "timestamp-millis"}


def upper() -> CompiledPlan:
    net = Network("upper")
    net.source("trades", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    return compile_network(net).placed({"trades": 1})


@pytest.fixture
def cluster(monkeypatch) -> MemoryCluster:
    monkeypatch.setattr(bound, "LOOKED_S", 0)
    cluster = MemoryCluster()
    for spec in topic_specs(upper(), compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    subjects.register(upper(), SchemaRegistry(cluster))
    deploy(cluster, upper())
    return cluster


def upstream(cluster: MemoryCluster) -> Upstream:
    net = Network("lower")
    options = {"topic": "upper.trades", "envelope": "arc", "event_time": "at"}
    net.source("trades", fields=FIELDS, identity=["key"], **options).where("all", "true")
    sources = compile_network(net).topology.sources
    return Upstream(cluster, SchemaRegistry(cluster), [*sources.values()])


def deploy_next(cluster: MemoryCluster, **changes) -> None:
    deployed = read_plan(cluster, "upper")
    plan = replace(upper(), deployment=deployed.deployment)
    write_plan(cluster, with_deployment(plan, version=2, **changes), first_epoch=7)


def test_a_new_version_of_the_plan_is_followed(cluster):
    above = upstream(cluster)
    above.poll()
    assert (above.versions, above.plan.deployment.version) == (1, 1)
    deploy_next(cluster)
    above.poll()
    assert (above.versions, above.plan.deployment.version) == (2, 2)
    above.poll()
    assert above.versions == 2
    above.close()


def test_an_arc_that_gets_another_topic_is_named(cluster):
    above = upstream(cluster)
    deploy_next(cluster, generations={"trades": 2})
    with pytest.raises(UpstreamError, match=r"bound to topic 'upper\.trades', which is no arc of"):
        above.poll()
