"""A scope goes from one process to four and back while records come in, and loses nothing."""

from contextlib import ExitStack
from itertools import pairwise
from time import monotonic, sleep

import pytest

from errata.demo.audit.verdict import audit
from errata.demo.run import END_LIMIT_S, START_LIMIT_S, Stage, await_until, stage
from errata.run.supervisor import Supervisor, network_commands

TAPE_S = 30.0
SHARED = ("ingest.trades", "upstream")
MORE = 3


def supervisors(on: Stage) -> tuple[Supervisor, Supervisor]:
    """The network with two scopes that are shared, and three further processes of each."""
    commands = network_commands("errata.demo.tape:net", on.plan, apart=True)
    shared = {name: [*commands[name], "--shared"] for name in SHARED}
    more = {f"{name} {n}": shared[name] for name in SHARED for n in range(MORE)}
    return tuple(
        Supervisor(found, environ=on.environ, say=print) for found in (commands | shared, more)
    )


def attempts_of(on: Stage) -> dict[str, int]:
    """Return the newest attempt of each task."""
    return {task: report.attempt for task, report in on.watch.view.reports.items()}


def moved(scope: str, earlier: dict[str, int], later: dict[str, int]) -> list[str]:
    """Return the tasks of a scope that have a newer attempt."""
    tasks = [f"{scope}.{partition}" for partition in range(4)]
    return [task for task in tasks if later[task] > earlier[task]]


@pytest.mark.kafka
def test_a_scope_from_one_process_to_four_and_back_while_it_runs():
    with stage(print) as on, ExitStack() as further:
        on.supervisor, others = supervisors(on)
        on.supervisor.start()
        await_until(on, on.not_started, limit_s=START_LIMIT_S, what="start")
        attempts = [attempts_of(on)]
        with on.ticker(seconds=TAPE_S) as playing:
            started, start = False, monotonic()
            while playing.poll() is None:
                on.supervisor.poll()
                if not started and monotonic() - start > TAPE_S / 4:
                    further.enter_context(others)
                    started = True
                if started:
                    others.poll()
                sleep(0.05)
            assert playing.returncode == 0, playing.communicate()[1].decode()

        def not_shared() -> list[str]:
            others.poll()
            now = attempts_of(on)
            return [scope for scope in SHARED if len(moved(scope, attempts[0], now)) < MORE]

        await_until(on, not_shared, limit_s=START_LIMIT_S, what="share the scopes")
        attempts.append(attempts_of(on))
        others.stop()
        on.end()
        await_until(on, on.behind, limit_s=END_LIMIT_S, what="process the tape to its end")
        attempts.append(attempts_of(on))
        verdict = audit(on.broker.settings)
    assert verdict.clean, "\n".join(verdict.lines())
    assert verdict.results == 105
    for scope in SHARED:
        taken, back = (moved(scope, earlier, later) for earlier, later in pairwise(attempts))
        assert len(taken) == MORE, f"{scope}: each process takes one partition"
        assert set(taken) <= set(back), f"{scope}: and gives it back"
