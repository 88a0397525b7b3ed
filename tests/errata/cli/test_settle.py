"""`errata settle`: a running network emits what its boxes keep back."""

import json

import pytest

from errata.cli import settle
from errata.testing import Driver
from tests.errata.conftest import Errata
from tests.errata.running import Running


@pytest.mark.kafka
def test_a_running_network_settles(running: Running) -> None:
    running.declare(2)
    file = running.folder / "moved.py"
    within = 'keep="1d", emit="on_update", significance={"total": 150, "top": 100}'
    file.write_text(file.read_text().replace('every="20m"), keep="1d"', f'every="20m"), {within}'))
    running.start()
    running.send(400)
    running.wait_for(running.at_work, "takes in what there is")
    running.send(300)
    running.wait_for(running.at_work, "takes in the corrections")
    for arc in ("up", "down"):
        assert running.found(arc) != running.wanted()
    told = running.errata("settle", "moved.py", "--json")
    assert (told.returncode, told.stderr) == (0, "")
    settled = json.loads(told.stdout)["settled"]
    assert settled["up"] > 0
    assert settled["up"] == settled["down"]
    for arc in ("up", "down"):
        assert running.found(arc) == running.wanted()


def test_where_nothing_is_kept_back_nothing_can_be_settled(driver: Driver, errata: Errata) -> None:
    done = errata("settle", "tape.py")
    assert done.status == 1
    assert (
        "network 'figure' has no box with significance=: all of its results are exact" in done.err
    )


def test_a_network_that_does_not_run_does_not_settle(
    driver: Driver, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "LIMIT_S", 0.1)
    monkeypatch.setattr(settle.View, "unsettled", lambda view, scope, task: 1)
    monkeypatch.setattr(type(driver.plan.topology), "keeps_back", lambda topology, scope: True)
    done = errata("settle", "tape.py")
    assert done.status == 1
    assert "prices.0 did not settle within 0.1 s: is it running? It settles once it" in done.err
