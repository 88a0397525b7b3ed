"""L6 over the real broker: kill any process of the demo's network at any moment, lose nothing."""

import random
from collections import Counter

import pytest

from errata.demo.audit.verdict import audit
from errata.demo.run import END_LIMIT_S, START_LIMIT_S, await_until, stage
from tests.errata.demo.killing import moments, played


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("kills", "tape_s", "apart"),
    [(2, 15.0, False), pytest.param(3, 40.0, True, marks=pytest.mark.slow)],
    ids=["together", "apart"],
)
def test_l6_every_process_killed_in_mid_tape_changes_nothing(kills, tape_s, apart):
    said: list[str] = []
    with stage(said.append, apart=apart) as on:
        on.supervisor.start()
        await_until(on, on.not_started, limit_s=START_LIMIT_S, what="start")
        chance, victims = random.Random(1), list(on.supervisor.pids) * kills
        chance.shuffle(victims)
        planned = moments(victims, seconds=tape_s + 2.0, chance=chance)  # some behind its end
        killed = played(on, planned, on.supervisor.kill, seconds=tape_s)
        assert killed == Counter(victims)
        await_until(on, on.behind, limit_s=END_LIMIT_S, what="process the tape to its end")
        restarts, reports = on.supervisor.restarts, dict(on.watch.view.reports)
        verdict = audit(on.broker.settings)
    assert verdict.clean, "\n".join([*said, *verdict.lines()])
    assert restarts == dict(killed)
    assert verdict.results == 105
    assert len(verdict.refused) == 30
    for scope in ("ingest.trades", "upstream", "downstream"):
        assert reports[f"{scope}.0"].attempt > 1  # it had begun again before it was killed again
