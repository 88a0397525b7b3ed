"""The watermark that a task sees is the minimum over all that its inputs come from."""

from errata import Network, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import topic_specs
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import Report
from errata.topics.memory import MemoryCluster


def test_a_scope_that_unites_two_sources_waits_for_the_watermarks_of_both():
    net = Network("tape")
    fields = {"key": "string", "at": "timestamp-millis"}
    one, two = (
        net.source(name, fields=fields, identity=["key"], event_time="at", keep="1d")
        for name in ("one", "two")
    )
    both = net.union("both", one, two)
    both.aggregate("counts", by=["key"], window=tumbling("1s"), n="count(*)")
    plan = compile_network(net).placed({"one": 1, "two": 1})
    assert plan.topology.sources_behind("both") == ("one", "two")
    cluster = MemoryCluster()
    for spec in topic_specs(plan, compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    view = View(cluster, plan=plan)
    for task, watermark in (("ingest.one.0", 100), ("ingest.two.0", 10)):
        view.note(Report(task, attempt=1, done=3, watermarks=((1, watermark),)))
    assert view.watermark("both.0", upto=3) == 10
