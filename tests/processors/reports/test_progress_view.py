"""The watermark that a task sees is the minimum over all that its inputs come from."""

from dataclasses import replace

from errata import Network, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import announce, topic_specs
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import Floor, Report
from errata.topics.memory import MemoryCluster
from tests.plans import with_deployment


def view_of(net: Network) -> View:
    plan = compile_network(net)
    plan = plan.placed(dict.fromkeys(plan.topology.sources, 1))
    cluster = MemoryCluster()
    for spec in topic_specs(plan, compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    return View(cluster, plan=plan)


def test_an_announced_version_does_not_count_once_it_is_taken_back():
    net = Network("tape")
    fields = {"key": "string", "at": "timestamp-millis"}
    net.source("trades", fields=fields, identity=["key"], event_time="at")
    view = view_of(net)
    assert view.version == 1
    for version in (2, 1):
        announce(view.cluster, with_deployment(view.plan, version=version))
        view.catch_up()
        assert view.version == version


def test_a_task_passes_no_epoch_in_which_its_watermark_falls_before_it_is_rebuilt():
    net = Network("tape")
    fields = {"key": "string", "at": "timestamp-millis"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.where("some", "key > 'a'", scope="some")
    trades.aggregate("counts", by=["key"], window=tumbling("1s"), n="count(*)", scope="counts")
    view = view_of(net)
    ahead = Report("ingest.trades.0", attempt=1, done=3, watermark=9000, watermarks=((1, 9000),))
    view.note(ahead)
    for task in ("counts.0", "some.0"):
        view.note(Report(task, attempt=1, done=2, watermark=9000))
    assert (view.frontier("counts.0"), view.watermark("counts.0", upto=3)) == (3, 9000)
    view.note(replace(ahead, done=7, watermark=5, watermarks=((6, 5),), lowered=6))
    assert (view.frontier("some.0"), view.frontier("counts.0")) == (7, 2)
    assert [view.watermark("counts.0", upto=epoch) for epoch in (2, 6)] == [9000, 5]
    view.note(Report("counts.0", attempt=1, done=6, watermark=5))
    assert (view.frontier("counts.0"), view.watermark("counts.0", upto=7)) == (7, 5)


def test_a_scope_that_unites_two_sources_waits_for_the_watermarks_of_both():
    net = Network("tape")
    fields = {"key": "string", "at": "timestamp-millis"}
    one, two = (
        net.source(name, fields=fields, identity=["key"], event_time="at", keep="1d")
        for name in ("one", "two")
    )
    both = net.union("both", one, two)
    both.aggregate("counts", by=["key"], window=tumbling("1s"), n="count(*)")
    view = view_of(net)
    assert view.plan.topology.sources_behind("both") == ("one", "two")
    for task, watermark in (("ingest.one.0", 100), ("ingest.two.0", 10)):
        view.note(Report(task, attempt=1, done=3, watermarks=((1, watermark),)))
    assert view.watermark("both.0", upto=3) == 10


def test_what_was_known_before_a_watermark_was_put_back_does_not_count():
    net = Network("tape")
    fields = {"key": "string", "at": "timestamp-millis"}
    both = net.union(
        "both",
        *(
            net.source(name, fields=fields, identity=["key"], event_time="at", keep="1d")
            for name in ("one", "two")
        ),
    )
    both.aggregate("counts", by=["key"], window=tumbling("1s"), n="count(*)")
    view = view_of(net)
    floors = (Floor(("one", "two"), 3, 9000),)
    one = Report("ingest.one.0", attempt=1, done=7, watermarks=((2, 9500),), floors=floors)
    view.note(one)
    view.note(Report("ingest.two.0", attempt=1, done=7, watermarks=((6, 5),), lowered=6))
    assert view.line("both").at(6) == 5
    view.note(replace(one, done=9, floors=(Floor(("one", "two"), 8, 70),)))
    assert [view.line("both").at(epoch) for epoch in (6, 8)] == [5, 70]
