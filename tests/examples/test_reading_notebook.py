"""The notebook of `examples/` runs, over a network that `errata dev` runs."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.errata.conftest import environ, errata
from tests.errata.page.test_dev import Dev, project, running

__all__ = ["environ", "errata", "project", "running"]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "reading.ipynb"


def cells() -> Iterator[str]:
    """The code of the notebook, without its results: they are not kept."""
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            yield "".join(cell["source"])


@pytest.mark.kafka
def test_the_cells_of_the_notebook_run_and_show_the_correction(
    running: Dev, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    running.told("6 records sent in 2 epochs")
    running.wait_for(lambda: len(running.ask("arcs/minutes/history")["revisions"]) == 4)
    servers = re.search(r"KAFKA_BOOTSTRAP_SERVERS=(\S+);", running.log.read_text())
    assert servers is not None
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", servers[1])
    monkeypatch.chdir(running.folder)
    monkeypatch.syspath_prepend(running.folder)
    monkeypatch.delitem(sys.modules, "network", raising=False)
    names: dict[str, Any] = {}
    shown = []
    for code in cells():
        *lines, last = code.splitlines()
        has_value = re.fullmatch(r"[\w.]+(\(.*\)(\.\w+\(\))?)?(, .*)?", last) is not None
        exec("\n".join(lines if has_value else code.splitlines()), names)
        shown.append(eval(last, names) if has_value else None)
    sys.modules.pop("network")
    table, _, by_symbol, _, drawn = shown
    assert table.height == 1
    assert by_symbol.to_dicts()[0]["prices"] == 2
    assert "replace" in capfd.readouterr().out
    assert [(point.first, point.now) for point in drawn.corrected] == [(26.5, 25.6), (26.0, None)]
