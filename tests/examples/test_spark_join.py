"""The example that joins an arc in Spark runs, and shows the corrections that the tape has."""

import re
import runpy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_join.py"


@pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open
@pytest.mark.kafka
@pytest.mark.spark
def test_the_example_joins_totals_and_shows_them_as_of_two_epochs(
    broker: Any,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("errata.topics.broker.EmbeddedBroker", lambda: nullcontext(broker))
    monkeypatch.setattr("errata.spark_jobs.session.open_session", lambda **_: spark)
    runpy.run_path(str(EXAMPLE))
    shown = capsys.readouterr().out
    assert re.search(r"600 trades up to epoch \d+; 60 corrections up to \d+\n", shown)
    assert re.search(r"London\| +302\|\n\|New York\| +287\|\n\| +Tokyo\| +4\|", shown)
    assert "02:00        43.0 ->       40.0 million dollars\n14:00     3,053.6 ->" in shown
