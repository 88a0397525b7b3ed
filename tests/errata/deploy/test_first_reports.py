"""What the tasks of a new version begin with, where tasks of the old one end."""

from errata import Network, tumbling
from errata.deploy.first_reports import FirstReports
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import topic_specs
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import Report
from errata.topics.memory import MemoryCluster


def plan(partitions: int) -> Plan:
    net = Network("shrunk")
    trades = net.source(
        "trades",
        topic="in",
        format="json",
        fields={"key": "string", "at": "timestamp-millis", "price": "long"},
        identity=["key"],
        event_time="at",
        keep="1h",
        rekey=True,
        partitions=partitions,
    )
    trades.aggregate("sums", by=["key"], window=tumbling("1m"), total="sum(price)", keep="1h")
    return compile_network(net).placed({"trades": 3})


def view(cluster: MemoryCluster, partitions: int) -> View:
    return View(cluster, plan=plan(partitions))


def test_totals_of_tasks_that_end_are_added_and_event_times_are_not():
    cluster = MemoryCluster()
    cluster.create("in", 3)
    for spec in topic_specs(plan(3), compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    old, new = view(cluster, 3), view(cluster, 1)
    for partition in range(3):
        report = Report(
            f"trades.{partition}",
            attempt=1,
            done=9,
            counts={"sums.revised": 2},
            settled_ms=1_000 + partition,
        )
        old.note(report)
    first = FirstReports(old, new, 9).report("trades.0", filled={})
    assert first.counts == {"sums.revised": 6}
    assert first.settled_ms == 1_000
