"""Faults of processes, of their state, and of one broker with its disk.

Each is a function that causes the fault and returns when it has ended. It returns what it has done,
or None if nothing took effect.
"""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.faults.clusters import Cluster
from tests.faults.processes import files_of
from tests.faults.running import RECOVER_S, Running
from tests.kafka.test_lost_records import cut

Fault = Callable[[Running, Cluster, Random], str | None]

PAGE = 4096
STARTED_S, ENDED_S = 60.0, 40.0
TRANSACTION_S = 15.0
"""How long a transaction may be open."""


def kill(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Kill one process, or several at once."""
    count = chance.choice((1, 1, 2, len(on.processes.names)))
    names = chance.sample(on.processes.names, min(count, len(on.processes.names)))
    killed = [name for name in names if on.processes.kill(name)]
    return f"killed {', '.join(killed)}" if killed else None


def pause(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Stop a process for a while, at times for longer than a transaction may be open."""
    name, seconds = chance.choice(on.processes.names), chance.choice((1.0, 4.0, TRANSACTION_S + 2))
    if not on.processes.send(name, signal.SIGSTOP):
        return None
    on.pause(seconds)
    return f"{name} stood still for {seconds:g} s" * on.processes.send(name, signal.SIGCONT) or None


def zombie(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Stop a process, replace it, and let it go on while the other one runs.

    One that was stopped before it had claimed anything begins after its replacement. That ends, and
    takes the tasks back when its supervisor starts it again.
    """
    name = chance.choice([name for name in on.processes.names if on.tasks_of(name)])
    if not on.processes.send(name, signal.SIGSTOP):
        return None
    on.pause(chance.choice((0.2, 2.0, TRANSACTION_S + 1)))
    attempts = _attempts(on)
    undead = on.processes.replace(name, state=on.folder / f"state.{chance.randrange(10**9)}")
    own = on.tasks_of(name) & attempts.keys()
    may_end = (name, "status 1")
    on.journal.may_end.add(may_end)
    try:
        on.until(
            lambda: all(_attempts(on).get(task, 0) > attempts[task] for task in own),
            limit_s=STARTED_S,
            what=f"replace {name}",
        )
        undead.resume()
        on.undead = undead.pids
        on.until(undead.has_ended, limit_s=ENDED_S, what=f"end {name}, which was replaced")
    finally:
        on.undead = {}
        undead.resume()
        undead.stop()
        on.journal.may_end.discard(may_end)
    return f"{name} went on while its replacement ran"


def _attempts(on: Running) -> dict[str, int]:
    view = on.view
    return {} if view is None else {task: view.of(task).attempt for task in on.tasks()}


def lose_state(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Kill a process and delete its state."""
    name = with_state(on, chance)
    folders = _state_of(on, name)
    if not on.processes.kill(name):
        return None
    for folder in folders:
        shutil.rmtree(folder)
    return f"{name} has lost {', '.join(folder.name for folder in folders)}"


def damage_state(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Kill a process and damage files of its state."""
    name = with_state(on, chance)
    return _damage(on, name, chance) if on.processes.kill(name) else None


def damage_open(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Damage files of the state of a process while it runs: bits of them, as a disk does."""
    name = with_state(on, chance)
    return _damage(on, name, chance, open_=True) if on.processes.pid(name) else None


def _damage(on: Running, name: str, chance: Random, *, open_: bool = False) -> str | None:
    files = _files_of(on, name)
    if not files:
        return None
    done = []
    for file in chance.sample(files, min(len(files), chance.choice((1, 1, 3, len(files))))):
        how = chance.choice(("flip", "zero") if open_ else ("flip", "zero", "cut", "remove"))
        if _harm(file, how, chance):
            done.append(f"{how} {file.relative_to(on.folder)}")
    on.has_damaged |= bool(done)
    return f"{name}: {', '.join(done)}" if done else None


def _harm(file: Path, how: str, chance: Random) -> bool:
    try:
        size = file.stat().st_size
        if how == "remove":
            file.unlink()
            return True
        with file.open("r+b") as harmed:
            at = chance.randrange(size)
            if how == "cut":
                harmed.truncate(at)
            elif how == "zero":
                at = at // PAGE * PAGE
                harmed.seek(at)
                harmed.write(bytes(min(PAGE, size - at)))
            else:
                harmed.seek(at)
                old = harmed.read(1)[0]
                harmed.seek(at)
                harmed.write(bytes([old ^ 1 << chance.randrange(8)]))
    except (OSError, ValueError):
        return False  # it is gone meanwhile
    return True


def with_state(on: Running, chance: Random) -> str:
    """Return a process that has files of its own; wait until one has.

    A network that reads only arcs of others has no index, and its copies may be too small for one.

    If brokers have lost records before, the network recovers first: a task that has lost its index,
    too, ends, as documented.
    """
    if on.lost:
        on.until(on.processed(), limit_s=RECOVER_S, what="recover before a state is harmed")
    found = list[str]()

    def find() -> bool:
        found[:] = [name for name in on.processes.names if _files_of(on, name)]
        return bool(found)

    if on.plan.topology.own_sources:
        on.until(find, limit_s=STARTED_S, what="write files")
    return chance.choice(found if find() else on.processes.names)


def _files_of(on: Running, name: str) -> list[Path]:
    """Return the files of a process's state that are not empty."""
    return [f for folder in _state_of(on, name) for f in files_of(folder) if f.stat().st_size]


def _state_of(on: Running, name: str) -> list[Path]:
    """Return the folders of a process's state."""
    root = on.processes.state_of(name) / on.plan.network / on.plan.deployment.id
    own = {"sweep"} if name.endswith("sweepers") else on.tasks_of(name)
    folders = sorted(root.iterdir()) if root.exists() else []
    return [folder for folder in folders if folder.name.removeprefix("beside.") in own]


def broker_kill(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Kill the broker and start it again, at once or after a while."""
    seconds = chance.choice((0.0, 3.0, 12.0))
    cluster.broker.kill()
    on.pause(seconds)
    cluster.broker.start()
    return f"the broker was away for {seconds:g} s"


def broker_pause(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Stop the broker for a while: its connections stay, and nothing is answered."""
    seconds = chance.choice((1.0, 5.0, TRANSACTION_S + 2))
    cluster.stop_process()
    try:
        on.pause(seconds)
    finally:
        cluster.continue_process()
    return f"the broker stood still for {seconds:g} s"


def lose_records(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Cut the end of an arc's log while the broker is down."""
    arc = losable(on, chance)
    cluster.broker.kill()
    try:
        lost = cut(cluster.broker, on.plan.deployment.topic(arc), share=chance.uniform(0.1, 0.4))
    finally:
        cluster.broker.start()
    on.lost.add(arc)
    return f"arc {arc} has lost {lost} bytes" if lost else None


def losable(on: Running, chance: Random) -> str:
    """Let the network recover, and return an arc that may lose records.

    It is not that of a source whose index may be damaged: with both gone its task ends, as
    documented.
    """
    on.until(on.processed(), limit_s=RECOVER_S, what="recover before records are lost")
    sources = on.plan.topology.sources.keys() if on.has_damaged else ()
    return chance.choice([arc for arc in on.plan.replayed_points() if arc not in sources])


RESTARTED = ("status 0", "signal 15")
"""How a process ends that is told to: one that does not listen to signals yet, by the signal."""


def roll(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """End one process after the other in good order, and start each again."""
    names = on.processes.names
    for name in chance.sample(names, len(names)):
        old = on.processes.pid(name)
        ends = {(name, end) for end in RESTARTED} - on.journal.may_end
        on.journal.may_end |= ends
        on.processes.send(name, signal.SIGTERM)
        on.until(
            lambda name=name, old=old: on.processes.pid(name) not in {None, old},
            limit_s=STARTED_S,
            what=f"restart {name}",
        )
        on.journal.may_end -= ends
    return f"{len(names)} processes were restarted"


NEXT = "next.py"


def replan(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Deploy another version of the plan, with other partitions, while everything runs."""
    on.partitions = chance.choice([count for count in (1, 2, 3) if count != on.partitions])
    # Status 1: its file is not of the deployed version. Else it is restarted with the new one.
    ends = {(name, end) for name in on.processes.names for end in ("status 1", *RESTARTED)}
    ends -= on.journal.may_end
    on.journal.may_end |= ends
    on.write_file(NEXT)
    limit_s = 400.0 if on.spark else 120.0  # jobs on Spark catch up one after the other
    on.command("deploy", NEXT, "--yes", limit_s=limit_s)
    old = set(on.processes.pids().values())
    on.write_file()
    on.replan()
    for name in on.processes.names:
        on.processes.send(name, signal.SIGTERM)
    on.until(
        lambda: old.isdisjoint(on.processes.pids().values()),
        limit_s=STARTED_S,
        what="start processes of the new version",
    )
    on.journal.may_end -= ends
    return f"{on.partitions} partitions"


PROCESS_FAULTS: dict[str, Fault] = {
    "kill": kill,
    "pause": pause,
    "zombie": zombie,
    "lose-state": lose_state,
    "damage-state": damage_state,
    "damage-open": damage_open,
    "broker-kill": broker_kill,
    "broker-pause": broker_pause,
    "lose-records": lose_records,
    "roll": roll,
    "replan": replan,
}
