"""`errata study`: what corrections cost in each mode."""

import pytest

from errata.processors.boxes.modes import MODES
from errata.study import results
from errata.study.cases import CASES, SWEEPS, Case
from errata.study.measure import Measured, measured
from tests.errata.cli.test_local import CLOSE, CORRECTED, FIGURE, LATER, lines, tape, write
from tests.errata.conftest import Errata

__all__ = ["tape"]  # a fixture


@pytest.fixture(scope="module")
def small() -> list[Measured]:
    """Windows of 100 tuples that do not overlap, in each mode."""
    return [measured(Case("windows", window=100, rate=0.0005, mode=mode)) for mode in MODES]


def test_a_correction_reads_a_window_or_its_result(small):
    """The paper's conjecture (section 3.3), by counts: a window of tuples against one result."""
    assert {each.case.mode: each.alone for each in small} == {
        "upstream": 100, "downstream": 1, "resident": 0, "adaptive": 1,
    }  # fmt: skip
    for each in small:
        assert each.a_correction("revised") == pytest.approx(1, abs=0.1)
        assert each.rate > 0 < each.latency_ms


def test_results_are_tables_and_pictures(small):
    first, choices = results.tables(small)
    assert first.title.startswith(SWEEPS["windows"])
    assert first.rows[1][4:7] == ["all", "downstream", "0"]
    assert [row[-1] for row in choices.rows] == ["1.00"]
    assert results.markdown([first]).count("\n| ") == len(first.rows) + 2
    larger = [measured(Case("windows", window=200, rate=0.0005, mode="upstream"))]
    assert results.pictures(small) == {}
    shown = results.pictures(small + larger)
    assert [*shown] == ["windows_1", "latency"]
    assert all(picture.startswith("<svg") for picture in shown.values())


def test_adaptive_boxes_read_less_than_either_mode_where_groups_differ():
    cases = [case for case in CASES if case.differs and case.mode != "resident"]
    (choice,) = results.compared([measured(case) for case in cases])
    assert choice.of_the_better < 0.8
    assert choice.read["adaptive"] == pytest.approx(choice.expected, rel=0.2)


def test_a_chain_revises_more_results_at_each_depth():
    chain = measured(Case("chains", window=100, overlap=10, depth=3, rate=0.0001))
    counts = [chain.a_correction("revised", arc) for arc in chain.case.arcs()]
    assert counts == [10, 19, 28]


def test_a_network_of_mine_over_a_feed(errata: Errata, tape, tmp_path):
    feed = write(tmp_path, "feed.jsonl", *FIGURE, LATER, CLOSE, CORRECTED, CLOSE)
    ended = errata("study", str(tape), "--input", f"prices={feed}")
    assert ended.status == 0, ended.err
    found = lines(ended.out)
    read = {line["mode"]: line["anchor_tuples"] for line in found if line["box"] == "all"}
    assert [*read] == [mode for mode in MODES if mode != "downstream"]
    assert "mode downstream is not legal" in ended.err
    assert read["upstream"] > 0 == read["resident"]


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["tape.py"], "need one another"),
        (["--input", "trades=feed.jsonl"], "need one another"),
        (["tape.py", "--input", "trades=feed.jsonl", "--quick"], "are of the cases"),
    ],
)
def test_wrong_usage(errata: Errata, arguments, needed):
    ended = errata("study", *arguments)
    assert ended.status == 2
    assert needed in ended.err
