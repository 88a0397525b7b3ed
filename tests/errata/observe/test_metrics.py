"""What a process tells of its work, by Prometheus' rules and by what it did."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import PROCESS_COLLECTOR

from errata import Network, tumbling
from errata.cli.reference import METRICS, metrics_page
from errata.observe import metrics
from errata.observe.metric_catalogue import text_of
from errata.observe.port import LIBRARY_METRICS
from errata.testing import Driver
from tests.errata.exposed import Labels, exposed

MINUTE = 60_000
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def driver() -> Iterator[Driver]:
    net = Network("told")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source(
        "trades", fields=fields, identity=["key"], event_time="at", keep="1d", lateness="1m"
    )
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)", mode="upstream")
    with Driver(net) as running:
        yield running


def insert(key: str, minute: int, price: int) -> dict:
    return {"op": "insert", "after": {"key": key, "at": minute * MINUTE, "price": price}}


def told(driver: Driver) -> dict[tuple[str, Labels], float]:
    tasks, sweepers = driver.tasks, driver.sweepers.values()
    work = metrics.work(driver.shared, [task.name for task in tasks], tasks, sweepers)
    return exposed(text_of(work))


def labelled(name: str, **labels: str) -> tuple[str, Labels]:
    return name, tuple(sorted({"network": "told", **labels}.items()))


INGEST = {"scope": "ingest.trades", "task": "ingest.trades.0"}
TRADES = {"scope": "trades", "task": "trades.0"}


def test_before_anything_happened_every_total_is_0_or_absent(driver: Driver) -> None:
    found = told(driver)
    assert found[labelled("errata_records_read_total", **INGEST)] == 0
    assert found[labelled("errata_attempts_total", **INGEST)] == 1
    assert found[labelled("errata_task_working", **TRADES)] == 1
    assert ("errata_epoch", labelled("", **TRADES)[1]) not in found


def test_records_of_others_in_an_arc_are_counted_where_they_are_read(driver: Driver) -> None:
    topic = driver.shared.plan.deployment.topic("trades")
    for value in (b"", b"not a revision"):
        driver.shared.cluster.send(topic, partition=0, key=b"key", value=value)
    driver.send("trades", insert("a", 1, 5))
    driver.close_epoch()
    assert told(driver)[labelled("errata_foreign_records_total", **TRADES)] == 2


def test_what_was_read_written_refused_replayed_and_held_is_told(driver: Driver) -> None:
    driver.send("trades", [insert("a", 1, 5), insert("b", 2, 7), insert("c", 30, 1)])
    driver.send(
        "trades", [insert("a", 1, 5), {"op": "delete", "before": insert("x", 1, 1)["after"]}]
    )
    driver.close_epoch()
    driver.send("trades", {"op": "replace", "after": insert("b", 2, 9)["after"]})
    driver.close_epoch()
    found = told(driver)
    assert found[labelled("errata_records_read_total", **INGEST)] == 6
    for outcome, count in {"inserted": 3, "duplicates": 1, "replaced": 1, "deleted": 0}.items():
        assert found[labelled("errata_ingested_total", **INGEST, outcome=outcome)] == count
    letters = labelled("errata_dead_letters_total", **INGEST, reason="unknown identity")
    assert found[letters] == 1
    assert found[labelled("errata_revisions_total", arc="trades", op="insert")] == 3
    assert found[labelled("errata_revisions_total", arc="trades", op="replace")] == 1
    assert found[labelled("errata_revisions_total", arc="sums", op="replace")] == 1
    for kind in ("closed", "revised"):
        assert found[labelled("errata_results_total", **TRADES, box="sums", kind=kind)] == 1
    assert found[labelled("errata_replays_total", **TRADES, box="sums")] == 1
    assert found[labelled("errata_replayed_tuples_total", **TRADES, box="sums")] == 2
    assert found[labelled("errata_replays_answered_total", arc="trades")] == 1
    assert found[labelled("errata_answered_tuples_total", arc="trades")] == 2
    assert found[labelled("errata_live_rows", **TRADES, box="sums")] == 1
    assert found[labelled("errata_epoch", **TRADES)] == 2
    assert found[labelled("errata_epochs_total", scope="trades")] == 2
    assert found[labelled("errata_commit_seconds_count", scope="trades")] >= 3
    assert found[labelled("errata_sweeper_epoch", arc="trades", partition="0")] == 2
    assert found[labelled("errata_sweeper_full", arc="trades", partition="0")] == 0
    assert found[labelled("errata_frontier_lag_seconds", **TRADES)] == 0
    assert found[labelled("errata_watermark_lag_seconds", **TRADES)] > 10**9
    assert found[labelled("errata_input_lag_records", **TRADES)] == 0


def test_a_task_that_stands_still_lags_in_epochs_and_in_records(driver: Driver) -> None:
    driver.send("trades", insert("a", 1, 5))
    driver.close_epoch()
    ingest, view = driver.ingests["trades"], driver.shared.view
    life = driver.attempts[driver.tasks.index(ingest)]
    driver.send("trades", [insert("b", 2, 5), insert("c", 2, 5)])
    driver.epoch += 20
    while ingest.report.done < 21:
        next(life)
    view.poll()
    found = told(driver)
    assert found[labelled("errata_frontier_lag_seconds", **TRADES)] == 1.0
    assert found[labelled("errata_input_lag_records", **TRADES)] >= 2


def test_a_source_that_has_ended_has_no_lag_of_its_watermark(driver: Driver) -> None:
    driver.send("trades", insert("a", 1, 5))
    driver.close_epoch()
    driver.end()
    found = told(driver)
    for labels in (INGEST, TRADES):
        assert labelled("errata_watermark_lag_seconds", **labels) not in found


def test_every_metric_is_listed_with_the_labels_and_the_kind_that_it_has(driver: Driver) -> None:
    driver.send("trades", [insert("a", 1, 5), insert("b", 30, 7)])
    driver.close_epoch()
    listed = {metric.name: metric for metric in METRICS}
    assert len(listed) == len(METRICS)
    for name, labels in told(driver):
        metric = listed.get(name) or listed[name.rpartition("_")[0]]
        assert [label for label, _ in labels if label != "le"] == sorted(metric.labels)


def test_what_the_library_tells_of_a_process_is_listed_as_it_does() -> None:
    told = exposed(text_of(PROCESS_COLLECTOR))
    assert {name for name, _ in told} == {metric.name for metric in LIBRARY_METRICS}
    lines = text_of(PROCESS_COLLECTOR).splitlines()
    for metric in LIBRARY_METRICS:
        assert f"# HELP {metric.name} {metric.about}" in lines
        assert f"# TYPE {metric.name} {metric.kind}" in lines


def test_names_end_as_prometheus_users_know_it() -> None:
    for metric in METRICS:
        assert metric.name.startswith(("errata_", "process_"))
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric
        assert not metric.since_start or metric.kind in ("counter", "histogram"), metric


def test_the_page_of_metrics_is_up_to_date() -> None:
    told = "python -m errata.cli.reference metrics > docs/metrics.md"
    assert (ROOT / "docs" / "metrics.md").read_text() == metrics_page(), told
