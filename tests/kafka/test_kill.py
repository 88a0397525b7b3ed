"""L6 over the real broker: kill any process of the demo's network at any moment, lose nothing."""

import random
from collections import Counter
from time import monotonic, sleep

import pytest

from errata.demo.audit.verdict import audit
from errata.demo.run import END_LIMIT_S, START_LIMIT_S, await_until, stage

TAPE_S = 40.0
KILLS = 3
"""Of each process."""


def kills(names: list[str], seed: int) -> list[tuple[float, str]]:
    """Moments while the tape plays, and a little after its end, each with a process to kill."""
    chance = random.Random(seed)
    victims = names * KILLS
    chance.shuffle(victims)
    share = (TAPE_S + 2.0) / len(victims)
    return [(chance.uniform(i, i + 1) * share, name) for i, name in enumerate(victims)]


@pytest.mark.kafka
@pytest.mark.parametrize("seed", [1])
def test_l6_every_process_killed_three_times_in_mid_tape_changes_nothing(seed):
    said: list[str] = []
    with stage(said.append) as on:
        on.supervisor.start()
        await_until(on, on.ready, limit_s=START_LIMIT_S, what="start")
        planned = kills(list(on.supervisor.pids), seed)
        killed: Counter[str] = Counter()
        with on.ticker(seconds=TAPE_S) as playing:
            start, ended = monotonic(), False
            while planned or not ended:
                on.supervisor.poll()
                if planned and monotonic() - start >= planned[0][0]:
                    name = planned[0][1]
                    if on.supervisor.kill(name):  # else it is down, and comes up soon
                        killed[name] += 1
                        planned.pop(0)
                if not ended and playing.poll() is not None:
                    assert playing.returncode == 0, playing.communicate()[1].decode()
                    on.end()
                    ended = True
                sleep(0.02)
        assert len(killed) == 4
        assert set(killed.values()) == {KILLS}
        await_until(on, on.behind, limit_s=END_LIMIT_S, what="process the tape to its end")
        restarts, reports = on.supervisor.restarts, dict(on.watch.view.reports)
        verdict = audit(on.broker.bootstrap_servers)
    assert verdict.clean, "\n".join([*said, *verdict.lines()])
    assert restarts == dict(killed)
    assert verdict.results == 105
    assert len(verdict.refused) == 30
    for scope in ("ingest.trades", "upstream", "downstream"):
        assert reports[f"{scope}.0"].attempt > 1  # it had begun again before it was killed again
