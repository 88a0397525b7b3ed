"""The examples run, and print what they promise."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_renames_that_are_corrected_revise_closed_totals_behind_the_whole_chain(capsys):
    runpy.run_path(str(EXAMPLES / "renames.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "at the end of the day: META None -> 111, X None -> 1000",
        "a rename is corrected: META 111 -> 100, MVRS None -> 11",
        "one of the chain is deleted: FBK None -> 10, MVRS 11 -> 1",
        "one closes a circle: TWTR None -> 1000, X 1000 -> None",
        "the circle is broken: TWTR 1000 -> None, XAI None -> 1000",
    ]


def test_figure_1_prints_the_same_two_revisions_in_each_mode(capsys):
    runpy.run_path(str(EXAMPLES / "figure_1.py"))
    assert capsys.readouterr().out.splitlines() == [
        "  upstream: 1:40  80.00 -> 77.00",
        "  upstream: 2:00  62.00 -> 59.00",
        "downstream: 1:40  80.00 -> 77.00",
        "downstream: 2:00  62.00 -> 59.00",
    ]
