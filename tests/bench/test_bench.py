"""The benchmark's short form: it runs, and its results are right."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import latency
from bench.peers import chart
from bench.tape import tape
from bench.variants import VARIANTS
from errata.schemas import revisions as frames


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.kafka
def test_the_short_form_runs_and_its_results_equal_a_recomputation(broker):
    shown = run("bench.run", "--short")
    assert "ratio to raw" in shown
    measured = {line[:18].strip() for line in shown.splitlines()}
    assert measured >= {"raw", *VARIANTS}


@pytest.mark.kafka
def test_kafka_streams_has_the_results_of_a_recomputation(broker):
    shown = run(
        "bench.peers.run", "--short", "--engines", "Kafka", "--queries", "signed", "upserts"
    )
    rows = [line for line in shown.splitlines() if "Kafka Streams" in line and "|" in line]
    assert len(rows) == 4  # two queries; of the first one, windows kept and forgotten
    assert all("| 0 of " in row for row in rows)


@pytest.mark.kafka
def test_every_correction_has_its_latency(broker):
    shown = run("bench.latency", "--short")
    rows = [line for line in shown.splitlines() if "one aggregate" in line and "|" in line]
    assert len(rows) == 2
    assert not any("nan" in row for row in rows)


def test_a_correction_revises_its_result_in_a_long_history():
    assert "| 1,000,000 |" in re.sub(" +", " ", run("bench.history", "--short"))


def test_the_charts_show_every_engine_and_network():
    rates = {"signed": {"Errata": 1_000.0, "Kafka <Streams>": 500.0}}
    assert {"Errata", "Kafka &lt;Streams&gt;", "1.0 k/s"} <= texts(chart.drawn(rates))
    row = latency.Row("a join", 50, "10/s", 10.0, 2, [3.0, 40.0], [4.0, 50.0])
    assert {"a join, 50 ms, 10/s", "p99"} <= texts(latency.drawn([row]))


def texts(svg: str) -> set[str]:
    ElementTree.fromstring(svg)  # it is well-formed
    return set(re.findall(r">([^<>]+)</text>", svg))


def test_the_tape_is_the_same_for_the_same_seed_and_has_its_share_of_corrections():
    one, other = tape(10_000), tape(10_000)
    assert one.equals(other)
    assert not one.equals(tape(10_000, seed=8))
    replaced = (one["op"] == frames.REPLACE).sum()
    deleted = (one["op"] == frames.DELETE).sum()
    assert 60 < replaced < 140
    assert 5 < deleted < 40
