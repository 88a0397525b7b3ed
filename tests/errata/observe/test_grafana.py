"""The Grafana board: of the shape of one, and every metric and label that it names exists."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from errata.cli.reference import METRICS
from errata.observe.metric_catalogue import HISTOGRAM

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "docker" / "grafana" / "errata.json").read_text()
)
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
SUFFIXES = ("_bucket", "_sum", "_count")
LABELS = {f"{m.name}{s}": m for m in METRICS for s in (SUFFIXES if m.kind == HISTOGRAM else ("",))}
SCRAPED = {"instance", "job", "le"}


def expressions() -> list[str]:
    found = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return [*found, *(v["definition"] for v in BOARD["templating"]["list"] if "definition" in v)]


def named(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:errata|process)_\w+", expression))


def test_it_has_the_shape_of_a_board() -> None:
    assert (BOARD["uid"], BOARD["title"]) == ("errata", "Errata")
    assert BOARD["schemaVersion"] >= 36
    assert "id" not in BOARD  # the database's, not the file's
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["type"] in ("timeseries", "stat")
        assert panel["targets"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        assert panel["fieldConfig"]["defaults"]["unit"]


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells


def test_the_data_source_is_a_variable() -> None:
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert (variables["source"]["type"], variables["source"]["query"]) == (
        "datasource",
        "prometheus",
    )
    sources = [panel["datasource"] for panel in PANELS]
    sources += [target["datasource"] for panel in PANELS for target in panel["targets"]]
    assert {json.dumps(source) for source in sources} == {
        json.dumps({"type": "prometheus", "uid": "${source}"})
    }


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_that_it_names_exists(expression: str) -> None:
    metrics = named(expression)
    assert metrics
    assert metrics <= LABELS.keys()
    told = {label for name in metrics for label in LABELS[name].labels} | SCRAPED
    asked = re.findall(r"(?:by|on) \(([^)]*)\)", expression)
    asked += re.findall(r"\{(\w+)=", expression)
    assert {label.strip() for labels in asked for label in labels.split(",")} <= told
    assert expression.count("(") == expression.count(")")


def test_legends_are_of_labels_that_are_left() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                kept = re.search(r"(?:by|on) \(([^)]*)\)", target["expr"])
                assert kept, target
                assert label in kept[1], target


@pytest.mark.parametrize(
    "metric", [m for m in METRICS if m.kind == "counter"], ids=lambda m: m.name
)
def test_a_counter_is_shown_as_a_rate(metric: Any) -> None:
    for expression in expressions():
        if metric.name in named(expression):
            assert re.search(rf"(rate|increase)\({metric.name}\b", expression), expression
