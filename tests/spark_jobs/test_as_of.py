"""As of which epoch an arc can be audited, and which of its tuples."""

import pytest

from errata import Network, Stream, hopping, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.wire.report import NEVER, Report
from errata.schemas import revisions as frames
from errata.spark_jobs.as_of import AsOf, Auditor, Bound, NotAuditableError, Reports
from errata.testing import Driver
from errata.topics.cluster import TopicPartition
from tests.plans import with_deployment

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LAG_MS = 2**60


def trades(net: Network, keep: str) -> Stream:
    return net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "n": "long"},
        identity=["key"],
        event_time="at",
        partition_by=["key"],
        keep=keep,
    )


def small(keep: str = "10y", *, ever: bool = True) -> Network:
    net = Network("n")
    real = trades(net, keep).where("real", "n > 0")
    window = hopping("30m", every="20m")
    sums = real.aggregate("sums", by=["key"], window=window, s="sum(n)", keep="20y")
    sums.aggregate("days", by=["key"], window=tumbling("1d"), s="sum(s)")
    if ever:
        real.aggregate("ever", by=["n"], window=None, c="count(*)")
    fleeting = net.source(
        "fleeting",
        fields={"key": "string", "at": "timestamp-millis"},
        identity=["key"],
        event_time="at",
    )
    fleeting.where("some", "key <> 'a'")
    return net


def auditor_of(driver: Driver, *, lag_ms: int = LAG_MS) -> Auditor:
    view = Reports(driver.cluster, plan=driver.plan)
    view.catch_up()
    return Auditor(view, lag_ms)


def insert(driver: Driver, at: int, n: int = 1) -> None:
    after = {"key": "k", "at": at, "n": n} | {"key": f"{at}"}
    driver.send("trades", {"op": "insert", "after": after})
    driver.close_epoch()


def test_only_what_boxes_write_over_kept_history_is_audited() -> None:
    with Driver(small()) as driver:
        plan = compile_network(small()).placed(dict.fromkeys(["trades", "fleeting"], 2))
        auditor = Auditor(Reports(driver.cluster, plan=plan), LAG_MS)
        there = auditor.arcs()
    assert [arc for arc, why in there.items() if not why] == ["sums", "days", "ever"]
    assert "'fleeting' keeps no history; give it keep=" in there["some"]
    assert auditor.require("days") == "days"
    for arc, why in (
        ("some", "keeps no history"),
        ("trades", "is a source"),
        ("real", "stays inside its processes"),
        ("ever.exchange", "is an exchange"),
        ("nope", "has no arc 'nope'"),
    ):
        with pytest.raises(NotAuditableError, match=f"{why}.*sums, days, ever"):
            auditor.require(arc)


def test_the_watermark_of_every_epoch_is_told_by_the_reports_that_are_there() -> None:
    with Driver(small()) as driver:
        told = dict[int, int]()
        for minute in (10, 90, 50, 200, 201, 300):
            insert(driver, minute * MINUTE)
            report = driver.shared.view.of("trades.0")
            told[report.done] = report.watermark
        auditor = auditor_of(driver)
        assert len(told) == 6
        for epoch, watermark in told.items():
            as_of = auditor.as_of("sums", requested=epoch)
            assert (as_of.epoch, as_of.watermarks) == (epoch, {"sums": watermark})
        newest = max(told)
        assert auditor.as_of("sums", requested=None).epoch >= newest
        with pytest.raises(NotAuditableError, match=r"epoch 999.*complete up to epoch"):
            auditor.as_of("sums", requested=999)

        compacted = Reports(driver.cluster, plan=driver.plan)  # has the last report of each only
        for report in list(driver.shared.view.reports.values()):
            compacted.note(report)
        assert compacted.watermark_at("trades", newest) == told[newest]
        assert compacted.watermark_at("trades", min(told)) is None


def test_a_watermark_is_told_by_what_older_reports_said_before_they_forgot_it() -> None:
    with Driver(small()) as driver:
        view = Reports(driver.cluster, plan=driver.plan)
        view.note(Report("trades.0", done=5, watermark=1))
        view.note(Report("ingest.trades.0", done=30, watermarks=((4, 1), (20, 7), (30, 8))))
        view.note(Report("trades.0", done=40, watermark=9))
        view.note(Report("ingest.trades.0", done=50, watermarks=((50, 10),)))
        told = {
            epoch: view.watermark_at("trades", epoch) for epoch in (4, 5, 19, 20, 30, 40, 49, 50)
        }
        assert told == {4: None, 5: 1, 19: 1, 20: 7, 30: 8, 40: 9, 49: 9, 50: 10}


def test_an_epoch_whose_records_may_have_been_compacted_is_refused() -> None:
    with Driver(small()) as driver:
        for minute in (10, 90, 200):
            insert(driver, minute * MINUTE)
        auditor = auditor_of(driver, lag_ms=DAY)  # these epochs are of 1970
        auditor.as_of("sums", requested=None)
        with pytest.raises(NotAuditableError, match="it has been revised since"):
            auditor.as_of("sums", requested=1)


def test_an_epoch_before_the_present_version_of_the_plan_is_refused() -> None:
    with Driver(small()) as driver:
        for minute in (10, 90, 200):
            insert(driver, minute * MINUTE)
        plan = with_deployment(driver.plan, version=2, first_epoch=3)
        view = Reports(driver.cluster, plan=plan)
        view.catch_up()
        assert Auditor(view, LAG_MS).as_of("sums", requested=2).epoch == 2
        with pytest.raises(NotAuditableError, match="version 2 of the plan begins with epoch 3"):
            Auditor(view, LAG_MS).as_of("sums", requested=1)


def test_results_are_judged_whose_windows_begin_within_what_is_kept() -> None:
    with Driver(small(keep="2d", ever=False)) as driver:
        auditor = auditor_of(driver)
        assert auditor.bound("sums") == Bound(NEVER)  # nothing has come, so nothing has gone
        insert(driver, 100_000 * HOUR)
        auditor = auditor_of(driver)
        kept_from = 100_000 * HOUR - 2 * DAY
        assert auditor.bound("real") == Bound(kept_from)
        assert auditor.bound("sums") == Bound(kept_from + 30 * MINUTE - 1)  # event time: window end


def test_nothing_is_left_out_over_an_arc_that_whole_histories_keep_for_ever() -> None:
    with Driver(small(keep="2d")) as driver:
        insert(driver, 100_000 * HOUR)
        auditor = auditor_of(driver)
        assert auditor.bound("ever") == auditor.bound("real") == Bound(NEVER)


def test_an_arc_whose_topic_has_lost_its_beginning_may_lack_tuples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Driver(small()) as driver:
        auditor = auditor_of(driver)
        assert auditor.bound("days") == Bound(NEVER)
        monkeypatch.setattr(driver.cluster, "offset_at", lambda place, time_ms: 5)
        assert auditor.bound("days") == Bound(NEVER, (frames.INSERT,))
        assert auditor.bound("sums") == Bound(NEVER)  # a connection point


def test_behind_a_map_that_moves_tuples_in_time_what_is_too_much_is_not_judged() -> None:
    net = Network("n")
    fields = {"key": "string", "at": "timestamp-millis", "then": "timestamp-millis"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="2d")
    trades.map("moved", at="then")
    with Driver(net) as driver:
        assert auditor_of(driver).bound("moved") == Bound(NEVER)
        after = {"key": "k", "at": 100_000 * HOUR, "then": 5}
        driver.send("trades", {"op": "insert", "after": after})
        driver.close_epoch()
        assert auditor_of(driver).bound("moved") == Bound(NEVER, (frames.DELETE,))


def on_spark() -> Network:
    net = Network("n")
    hours = trades(net, "10y").aggregate(
        "hours", by=["key"], window=tumbling("1h"), s="sum(n)", place="spark"
    )
    hours.where("many", "s > 10")
    return net


def test_behind_a_job_of_sparks_an_arc_is_compared_as_of_the_end_of_a_batch() -> None:
    with Driver(on_spark()) as driver:
        plan = compile_network(on_spark()).placed({"trades": 1})
        auditor = Auditor(Reports(driver.cluster, plan=plan), LAG_MS)
        view = auditor.view
        view.note(Report("ingest.trades.0", done=90, watermarks=((10, 5), (70, 8))))
        (hours,) = view.tasks(plan.topology.scope_of("hours"))
        (many,) = view.tasks(plan.topology.scope_of("many"))
        end = {TopicPartition(plan.deployment.topic("trades"), 0): (7, 85)}
        view.note(Report("ingest.trades.0", done=90, watermarks=((70, 8),), ends=end))
        view.note(Report(hours, done=80, watermark=8))
        view.note(Report(many, done=80))
        assert auditor.as_of("many", requested=None) == AsOf(80, {"hours": 8})
        with pytest.raises(NotAuditableError, match=r"epoch 79.*its last batch ended with 80"):
            auditor.as_of("many", requested=79)
        with pytest.raises(NotAuditableError, match=r"epoch 85.*complete up to epoch 80 only"):
            auditor.as_of("many", requested=85)
