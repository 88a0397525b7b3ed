"""L6 over the real broker: kill any process of the demo's network at any moment, lose nothing."""

import random

import pytest

from errata.demo.audit.verdict import audit
from errata.demo.run import END_LIMIT_S, START_LIMIT_S, await_until, stage
from tests.errata.demo.killing import moments, played


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("kills", "tape_s"), [(1, 15.0), pytest.param(3, 40.0, marks=pytest.mark.slow)]
)
def test_l6_every_process_killed_in_mid_tape_changes_nothing(kills, tape_s):
    said: list[str] = []
    with stage(said.append) as on:
        on.supervisor.start()
        await_until(on, on.not_started, limit_s=START_LIMIT_S, what="start")
        chance, victims = random.Random(1), list(on.supervisor.pids) * kills
        chance.shuffle(victims)
        planned = moments(victims, seconds=tape_s + 2.0, chance=chance)  # some behind its end
        killed = played(on, planned, on.supervisor.kill, seconds=tape_s)
        assert len(killed) == 4
        assert set(killed.values()) == {kills}
        await_until(on, on.behind, limit_s=END_LIMIT_S, what="process the tape to its end")
        restarts, reports = on.supervisor.restarts, dict(on.watch.view.reports)
        verdict = audit(on.broker.settings)
    assert verdict.clean, "\n".join([*said, *verdict.lines()])
    assert restarts == dict(killed)
    assert verdict.results == 105
    assert len(verdict.refused) == 30
    for scope in ("ingest.trades", "upstream", "downstream"):
        assert reports[f"{scope}.0"].attempt > 1  # it had begun again before it was killed again
