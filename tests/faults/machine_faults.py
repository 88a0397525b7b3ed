"""Faults of the machine of one process: a slow disk, one that fails, and a clock that is wrong."""

from collections.abc import Callable
from random import Random
from time import monotonic

from tests.faults import preload
from tests.faults.clusters import Cluster
from tests.faults.process_faults import with_state
from tests.faults.running import Running

Fault = Callable[[Running, Cluster, Random], str | None]

SLOW_MS, SLOW_S, FAILS_S, LIMIT_S = (100, 1_000, 5_000), 8.0, 3.0, 30.0
ENDS_S = 3.0
"""How long after a call has failed its process may take to end."""
DAY_S, SHIFTED_S = 86_400, (2.0, 8.0)


def disk_slow(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Let every fsync of a process take long."""
    return _harm(on, chance, seconds=SLOW_S, fsync_ms=chance.choice(SLOW_MS))


def disk_fails(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Let every fsync of a process fail: it may end, and says why."""
    return _harm(on, chance, seconds=FAILS_S, fsync_fails=True)


def _harm(on: Running, chance: Random, *, seconds: float, **how: int) -> str | None:
    name = with_state(on, chance)  # the others have nothing to synchronize
    control, deadline = on.processes.control(name), monotonic() + LIMIT_S
    before = preload.harmed(control)
    on.journal.may_end.add((name, "status 1"))
    preload.write(control, **how)
    on.processes.kill(name)  # an index is synchronized when it is opened, else now and then
    on.until(
        lambda: preload.harmed(control) > before or monotonic() > deadline,
        limit_s=2 * LIMIT_S,
        what="wait",
    )
    on.pause(seconds)
    preload.write(control)
    on.pause(2 * preload.TAKEN_S + ENDS_S)
    on.journal.may_end.discard((name, "status 1"))
    count = preload.harmed(control) - before
    return f"{name}: {how}, {count} calls" if count else None


def clock(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Put the clock of a process two days ahead or back; at times it is started with it."""
    name, days = chance.choice(on.processes.names), chance.choice((-2, 2))
    preload.write(on.processes.control(name), shift_s=days * DAY_S)
    if chance.random() < 0.5:
        on.processes.kill(name)
    on.pause(chance.choice(SHIFTED_S))
    preload.write(on.processes.control(name))
    return f"{name}: {days} days" if on.processes.pid(name) else None


MACHINE_FAULTS: dict[str, Fault] = {
    "disk-slow": disk_slow,
    "disk-fails": disk_fails,
    "clock": clock,
}
