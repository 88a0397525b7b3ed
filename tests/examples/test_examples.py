"""The examples run, and print what they promise."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_figure_1_prints_the_same_two_revisions_in_each_mode(capsys):
    runpy.run_path(str(EXAMPLES / "figure_1.py"))
    assert capsys.readouterr().out.splitlines() == [
        "  upstream: 1:40  80.00 -> 77.00",
        "  upstream: 2:00  62.00 -> 59.00",
        "downstream: 1:40  80.00 -> 77.00",
        "downstream: 2:00  62.00 -> 59.00",
    ]
