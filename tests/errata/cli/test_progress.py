"""Long work tells how far it has come: lines off a terminal, and no more than it should."""

import time

import pytest

from errata.cli import progress
from errata.cli.progress import Bars, waiting


def test_off_a_terminal_a_line_comes_after_each_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with Bars() as bars:
        task = bars.add_task("trades.csv", total=200)
        for _ in range(25):
            now[0] += 1
            bars.advance(task, 4)
        bars.update(task, completed=200)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" after")[0] for line in lines] == [
        "errata: trades.csv: 20%",
        "errata: trades.csv: 40%",
    ]


def test_what_takes_long_is_told_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.02)
    with waiting("filling the history of bars"):
        time.sleep(0.1)
    told = capsys.readouterr().err.splitlines()
    assert told
    assert all(line == "errata: filling the history of bars: 0 s so far" for line in told)
    with pytest.raises(ValueError, match="broken"), waiting("something"):
        raise ValueError("broken")
