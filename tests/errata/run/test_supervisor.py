"""Processes are kept running, and never outlive their supervisor."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from errata import Network, Stream, tumbling
from errata.processors.compile.compiler import compile_network
from errata.run import supervisor as supervisor_module
from errata.run.supervisor import (
    MOST_QUICK,
    QUICK_S,
    ProcessFailedError,
    Supervisor,
    UnknownProcessError,
    network_commands,
)

PYTHON = [sys.executable, "-c"]
WAITS = [*PYTHON, "import time; print('up', flush=True); time.sleep(600)"]
OBEYS = [
    *PYTHON,
    """if 1:
    import time
    from errata.run.stopping import Stop
    with Stop() as stop:
        stop.running = True
        print('up', flush=True)
        while not stop():
            time.sleep(0.01)
    """,
]
LIMIT_S = 30.0


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Stage:
    """A supervisor, what it said, and its clock."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ, self.said, self.clock = environ, list[str](), Clock()
        self.supervisor = Supervisor({})

    def start(self, *, optional: Collection[str] = (), **commands: list[str]) -> Supervisor:
        self.supervisor = Supervisor(
            commands,
            environ=self.environ,
            say=self.said.append,
            clock_s=self.clock,
            optional=optional,
        )
        self.supervisor.start()
        return self.supervisor

    def until(self, condition: Callable[[], bool], *, poll: bool = True) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, self.said
            if poll:
                self.supervisor.poll()
            time.sleep(0.005)


@pytest.fixture
def stage(environ: dict[str, str]) -> Iterator[Stage]:
    on = Stage(environ)
    yield on
    on.supervisor.stop()


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_are_started_and_their_lines_passed_on_with_their_name(stage: Stage) -> None:
    stage.start(one=WAITS, two=WAITS)
    stage.until(lambda: {"started one", "one: up", "started two", "two: up"} <= set(stage.said))


def test_processes_side_by_side_take_one_thread_each_unless_the_user_says_otherwise(
    environ: dict[str, str],
) -> None:
    asks = [*PYTHON, "import os; print(os.environ['POLARS_MAX_THREADS'])"]
    for given, found in ({}, "1"), ({"POLARS_MAX_THREADS": "3"}, "3"):
        on = Stage({k: v for k, v in environ.items() if k != "POLARS_MAX_THREADS"} | given)
        on.start(one=asks)
        on.until(lambda on=on, found=found: f"one: {found}" in on.said)
        on.supervisor.stop()


def test_a_killed_process_is_started_again_at_once_as_often_as_it_is_killed(stage: Stage) -> None:
    supervisor = stage.start(one=WAITS)
    for count in range(1, MOST_QUICK + 2):
        before = supervisor.pids["one"]
        assert supervisor.kill("one")
        stage.until(lambda before=before: supervisor.pids.get("one") not in (None, before))
        assert supervisor.restarts == {"one": count}
    assert "one ended with signal 9; restarting it" in stage.said


def test_a_process_that_dies_of_itself_is_started_again_after_a_pause(stage: Stage) -> None:
    supervisor = stage.start(one=[*PYTHON, "raise SystemExit(75)"])
    stage.until(lambda: not supervisor.pids)
    for _ in range(20):
        supervisor.poll()
    assert supervisor.restarts == {"one": 0}
    stage.clock.now_s += 1.0
    supervisor.poll()
    assert supervisor.restarts == {"one": 1}


def test_quick_deaths_in_a_row_end_everything_with_the_last_line(stage: Stage) -> None:
    dies = [*PYTHON, "print('errata: no broker answers'); raise SystemExit(75)"]
    supervisor = stage.start(other=WAITS, one=dies)
    other = supervisor.pids["other"]

    def time_flies() -> bool:
        if "one" not in supervisor.pids:
            stage.clock.now_s += 10.0
        return False

    with pytest.raises(ProcessFailedError, match="no broker answers") as failed:
        stage.until(time_flies)
    assert (failed.value.name, failed.value.status) == ("one", 75)
    assert supervisor.restarts == {"other": 0, "one": MOST_QUICK - 1}
    assert not runs(other)


def test_deaths_after_a_long_life_are_no_row(stage: Stage) -> None:
    supervisor = stage.start(one=[*PYTHON, "import sys; sys.stdin.read()"])
    for _ in range(MOST_QUICK + 1):
        stage.until(lambda: "one" in supervisor.pids)
        stage.clock.now_s += QUICK_S
        os.kill(supervisor.pids["one"], signal.SIGKILL)
        stage.until(lambda: "one" not in supervisor.pids)
    assert "one ended with signal 9; restarting it" in stage.said


@pytest.mark.parametrize("status", [1, 2])
def test_a_fault_that_no_restart_cures_ends_everything_at_once(stage: Stage, status: int) -> None:
    fails = [*PYTHON, f"print('errata: who, what'); raise SystemExit({status})"]
    supervisor = stage.start(other=WAITS, one=fails)
    other = supervisor.pids["other"]
    with pytest.raises(ProcessFailedError, match=f"'one' ended with status {status}.*who, what"):
        stage.until(lambda: False)
    assert "restarted one" not in stage.said
    assert not runs(other)


@pytest.mark.parametrize("status", [1, 75])
def test_without_an_optional_process_the_others_go_on(stage: Stage, status: int) -> None:
    fails = [*PYTHON, f"raise SystemExit({status})"]
    supervisor = stage.start(other=WAITS, one=fails, optional={"one"})
    other = supervisor.pids["other"]

    def is_given_up() -> bool:
        stage.clock.now_s += 10.0 if "one" not in supervisor.pids else 0.0
        return any(line.endswith("the others go on") for line in stage.said)

    stage.until(is_given_up)
    stage.clock.now_s += 100.0
    supervisor.poll()
    assert "one" not in supervisor.pids
    assert runs(other)


def test_stop_ends_all_and_may_be_called_twice(stage: Stage) -> None:
    supervisor = stage.start(one=OBEYS, two=OBEYS)
    pids = list(supervisor.pids.values())
    stage.until(lambda: {"one: up", "two: up"} <= set(stage.said))
    supervisor.stop()
    supervisor.stop()
    assert not any(map(runs, pids))
    assert supervisor.pids == {}


def test_after_stop_nothing_is_started_again(stage: Stage) -> None:
    supervisor = stage.start(one=[*PYTHON, "raise SystemExit(75)"])
    stage.until(lambda: not supervisor.pids)
    supervisor.stop()
    stage.clock.now_s += 100.0
    supervisor.poll()
    assert supervisor.restarts == {"one": 0}


def test_a_process_that_does_not_end_is_killed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("errata.run.supervisor.STOP_S", 0.2)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "
    supervisor = stage.start(one=[*PYTHON, deaf + "time.sleep(600)"])
    pid = supervisor.pids["one"]
    stage.until(lambda: "one: up" in stage.said)
    supervisor.stop()
    assert not runs(pid)
    assert any("killed" in line for line in stage.said)


def test_a_name_that_is_not_supervised_is_refused(stage: Stage) -> None:
    with pytest.raises(
        UnknownProcessError, match="no process 'three' is supervised; there are one"
    ):
        stage.start(one=WAITS).kill("three")


def test_a_process_that_is_dead_already_is_not_killed(stage: Stage) -> None:
    supervisor = stage.start(one=[*PYTHON, "raise SystemExit(75)"])
    stage.until(lambda: not supervisor.pids)
    assert not supervisor.kill("one")


SUPERVISES = """if 1:
    import sys, time
    from errata.run.supervisor import Supervisor
    with Supervisor({"one": [sys.executable, "-c", sys.argv[1]]}, say=print) as supervisor:
        print(supervisor.pids["one"], flush=True)
        while True:
            supervisor.poll()
            sys.stdout.flush()
            time.sleep(0.01)
    """


def test_children_end_if_the_supervisor_is_killed(environ: dict[str, str]) -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISES, OBEYS[-1]],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    told: list[str] = []
    while "one: up" not in told:
        told.append(supervisor.stdout.readline().strip())
    child = int(next(line for line in told if line.isdigit()))
    assert runs(child)
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    deadline = time.monotonic() + LIMIT_S
    while runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_network_has_a_process_a_source_and_one_a_scope_with_its_sweepers() -> None:
    net = Network("upped")
    commands = network_commands("net.py", compile_network(counted(net, "one")), apart=True)
    assert list(commands) == ["ingest.prices", "one"]
    assert commands["ingest.prices"][-3:] == ["net.py", "--scope", "ingest.prices"]
    assert commands["one"][-5:] == ["run", "net.py", "--scope", "one", "--sweep-beside"]


def test_sweepers_that_two_scopes_ask_are_a_process_of_their_own() -> None:
    net = Network("upped")
    plan = compile_network(counted(net, "one", "other"))
    commands = network_commands("net.py", plan, apart=True)
    assert list(commands) == ["ingest.prices", "one", "other", "sweepers"]
    assert commands["one"][-4:] == ["run", "net.py", "--scope", "one"]
    assert commands["sweepers"][-4:] == ["sweep", "net.py", "--arc", "prices"]


@pytest.mark.parametrize("scope", ["spark", "sweepers"])
def test_a_scope_named_like_a_shared_process_keeps_a_process_of_its_own(scope: str) -> None:
    net = counted(Network("upped"), scope, "other")
    Stream(net, "prices").aggregate(
        "job", by=["key"], window=tumbling("1m"), place="spark", scope="jobs", n="count(*)"
    )
    commands = network_commands("net.py", compile_network(net), apart=True)
    assert commands[scope][-4:] == ["run", "net.py", "--scope", scope]
    works = {name: command[command.index("net.py") - 1] for name, command in commands.items()}
    jobs, sweepers = (f".{n}" if n == scope else n for n in ("spark", "sweepers"))
    assert (works[jobs], works[sweepers], works[scope]) == ("spark", "sweep", "run")


@pytest.mark.parametrize(("processors", "parts"), [(3, ["1/3", "2/3", "3/3"]), (8, 4), (1, 0)])
def test_a_process_has_a_part_of_the_partitions_of_every_scope(
    monkeypatch: pytest.MonkeyPatch, processors: int, parts: list[str] | int
) -> None:
    monkeypatch.setattr(supervisor_module, "usable_processors", lambda: processors)
    plan = compile_network(counted(Network("upped"), "one", "other")).placed({"prices": 4})
    commands = network_commands("net.py", plan)
    scopes = ["--scope", "ingest.prices", "--scope", "one", "--scope", "other"]
    if isinstance(parts, int):
        parts = [f"{number + 1}/{parts}" for number in range(parts)]
    names = [f"tasks.{number + 1}" for number in range(len(parts))] or ["tasks"]
    assert list(commands) == names
    wanted = [["--part", part] for part in parts] or [[]]
    for command, part in zip(commands.values(), wanted, strict=True):
        assert command[command.index("net.py") + 1 :] == [*scopes, *part, "--sweep-beside"]


def test_there_are_no_more_processes_than_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "usable_processors", lambda: 8)
    plan = compile_network(counted(Network("upped"), "one")).placed({"prices": 4})
    assert list(network_commands("net.py", plan, most=1)) == ["tasks"]
    assert list(network_commands("net.py", plan, most=2)) == ["tasks.1", "tasks.2"]


def test_sweepers_that_jobs_ask_are_in_a_process_of_their_own() -> None:
    net = counted(Network("upped"), "one")
    Stream(net, "prices").aggregate(
        "job", by=["key"], window=tumbling("1m"), place="spark", n="count(*)"
    )
    commands = network_commands("net.py", compile_network(net).placed({"prices": 1}))
    assert list(commands) == ["tasks", "sweepers", "spark"]
    assert "--sweep-beside" not in commands["tasks"]


def counted(net: Network, *scopes: str) -> Network:
    prices = net.source(
        "prices",
        fields={"key": "string", "at": "timestamp-millis"},
        identity=["key"],
        event_time="at",
        keep="1d",
    )
    for scope in scopes:
        prices.aggregate(
            f"n_{scope}", by=[], window=tumbling("1h"), mode="upstream", n="count(*)", scope=scope
        )
    return net
