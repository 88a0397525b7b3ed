"""Reading the arc of another network while that one is deployed again, or taken away."""

from dataclasses import replace

import pytest

from errata import Network
from errata.processors.arcs import bound
from errata.processors.arcs.bound import Upstream, UpstreamError
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import deploy, read_plan, topic_specs, write_plan
from errata.processors.reports.validation import ReportValidator
from errata.processors.tasks import subjects
from errata.processors.wire.report import Report
from errata.topics.cluster import TopicPartition
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


def lower() -> CompiledPlan:
    net = Network("lower")
    options = {"topic": "upper.trades", "envelope": "arc", "event_time": "at"}
    net.source("trades", fields=FIELDS, identity=["key"], **options).where("all", "true")
    return compile_network(net).placed({"trades": 1})


def upstream(cluster: MemoryCluster) -> Upstream:
    sources = lower().topology.sources
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


def test_an_arc_that_gets_another_topic_is_named(cluster):
    above = upstream(cluster)
    deploy_next(cluster, generations={"trades": 2})
    with pytest.raises(UpstreamError, match=r"bound to topic 'upper\.trades', which is no arc of"):
        above.poll()


@pytest.mark.parametrize(
    ("pairs", "is_valid"),
    [
        ((), True),
        (((-1, -1), (5, 7)), True),
        (((-1, -1), (5, 7), (5, 8)), False),
        (((-1, -1), (5, 7), (6, 7)), False),
        (((5, 7), (4, 8)), False),
        (((-1, -1), (9, 7)), False),
    ],
)
def test_a_report_whose_pairs_nobody_can_follow_is_invalid(pairs, is_valid):
    validator = ReportValidator(lower(), lambda places: dict.fromkeys(places, 0))
    place = TopicPartition("upper.trades", 0)
    report = Report("ingest.trades.0", attempt=1, done=6, bound=pairs, ends={place: (0, 5)})
    why = validator.why_invalid(report, before=Report("ingest.trades.0"))
    assert (why is None) == is_valid, why


def test_only_partitions_of_its_own_source_are_named_by_the_task_of_a_bound_one():
    validator = ReportValidator(lower(), lambda places: dict.fromkeys(places, 0))
    report = Report("ingest.trades.0", ends={TopicPartition("lower.all", 0): (0, 5)})
    why = validator.why_invalid(report, before=Report("ingest.trades.0"))
    assert why == "it names partition 0 of lower.all, which its task does not write"
