"""How commands end: one message, an exit status, never a traceback."""

import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from errata.cli import entry
from errata.cli.app import command
from errata.cli.entry import app, declare
from errata.run.exit_status import complain, reported
from errata.run.stopping import WATCH_PARENT
from errata.schemas.errors import ErrataError
from errata.topics import secrets
from errata.topics.admin import TopicSettingsError
from errata.topics.cluster import ClusterError, FencedError
from errata.topics.refused import RefusedError
from tests.errata.conftest import Errata
from tests.errata.network_file import write_network


def status_of(error: BaseException) -> int:
    with pytest.raises(SystemExit) as ended, reported("errata test"):
        raise error
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ErrataError("who, what"), 1, "errata: who, what\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "errata: Permission denied: '/x'\n"),
        (KeyboardInterrupt(), 130, ""),
        (ValueError("odd\nthing"), 70, "internal error in `errata test`: ValueError: odd thing"),
        (type("Panic", (BaseException,), {})("gone"), 70, "Panic: gone"),
    ],
)
def test_what_a_command_raises_becomes_a_message_and_a_status(
    error: BaseException, status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(error) == status
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err


@pytest.mark.parametrize("status", [0, 130])
def test_a_signal_during_a_call_in_c_is_no_internal_error(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client for Kafka turns what the signal's handler raises into an error of its own."""
    error = SystemError("<built-in method list_offsets> returned a result with an exception set")
    error.__cause__ = SystemExit(status)
    assert status_of(error) == status
    assert capsys.readouterr().err == ""


def test_a_traceback_is_shown_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(ValueError("odd")) == 70
    assert "ERRATA_DEBUG=1" in capsys.readouterr().err
    monkeypatch.setenv("ERRATA_DEBUG", "1")
    assert status_of(ValueError("odd")) == 70
    assert "Traceback" in capsys.readouterr().err


def test_neither_a_message_nor_a_traceback_shows_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    secrets.remember({"sasl.password": "hunter2-of-test-app"})
    monkeypatch.setenv("ERRATA_DEBUG", "1")
    for error in (ErrataError("is hunter2-of-test-app"), ValueError("is hunter2-of-test-app")):
        status_of(error)
    err = capsys.readouterr().err
    assert err.count("is ***") == 4
    assert "hunter2" not in err


def test_under_a_supervisor_only_faults_that_a_restart_may_cure_have_a_status_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert status_of(ClusterError("away")) == 1
    monkeypatch.setenv(WATCH_PARENT, "1")
    assert status_of(ClusterError("away")) == 75
    assert status_of(TopicSettingsError([])) == 1
    assert status_of(RefusedError("wrong password")) == 1
    assert status_of(FencedError("another one")) == 1
    assert status_of(ErrataError("network")) == 1


def test_a_message_can_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    complain("red \x1b[31m\nnext é")
    assert out.getvalue() == "errata: red \\x1b[31m\nnext é\n"


@pytest.mark.parametrize(
    "arguments", [["explain", "tape.py"], ["explain", "tape.py", "--json"], ["dead-letters", "-h"]]
)
def test_a_reader_that_stops_reading_is_no_fault(
    tmp_path: Path, environ: dict[str, str], arguments: list[str]
) -> None:
    write_network(tmp_path)
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "errata", *arguments],
        stdout=writes,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environ,
        check=False,
    )
    os.close(writes)
    assert done.returncode in (1, 141)  # 1 is what the help of typer itself ends with
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("arguments", [["explain", "tape.py", "--json"], ["--help"]])
def test_a_full_disk_is_one_line(
    tmp_path: Path, environ: dict[str, str], arguments: list[str]
) -> None:
    write_network(tmp_path)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "errata", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environ,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"errata: No space left on device\n")


def test_ctrl_c_ends_a_command_with_130_and_says_nothing(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    write_network(tmp_path)
    os.mkfifo(tmp_path / "slow.jsonl")
    running = subprocess.Popen(
        [sys.executable, "-m", "errata", "local", "tape.py", "--input", "prices=slow.jsonl"],
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environ,
    )
    with (tmp_path / "slow.jsonl").open("wb"):  # opens when the command has opened its end
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, b"")


@pytest.mark.parametrize("arguments", [["explain"], ["bogus"], ["local", "t.py", "--input", "x"]])
def test_wrong_usage_is_2(errata: Errata, arguments: list[str]) -> None:
    (Path("t.py")).write_text(
        "from errata import Network\nnet = Network('n')\nnet.source('s', "
        "fields={'k': 'string', 'at': 'timestamp-millis'}, identity=['k'], "
        "event_time='at')"
    )
    assert errata(*arguments).status == 2


def commands(
    group: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the app, by the words that name it."""
    declare()
    group = typer.main.get_command(app) if group is None else group
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name), found


EVERY = dict(commands())


def test_all_commands_are_there() -> None:
    wanted = "demo init local explain up run sweep status tail print revise end"
    assert {*wanted.split()} <= {name for name, *_ in EVERY}
    assert {words[1] for words in EVERY if words[0] == "dead-letters"} == {
        "list",
        "acknowledge",
        "show",
        "resend",
    }


def example_of(found: Any) -> str:
    told = str(found.epilog)
    assert told.startswith("Example: [bold]"), told
    return told.removeprefix("Example: [bold]").removesuffix("[/bold]")


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_has_help_with_an_example(errata: Errata, words: tuple[str, ...]) -> None:
    done = errata(*words, "--help")
    assert (done.status, done.err) == (0, "")
    assert f"errata {words[0]}" in done.out.partition("Example")[2]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_the_example_of_a_command_parses(words: tuple[str, ...]) -> None:
    line = shlex.split(example_of(EVERY[words]).partition(">")[0])
    while "=" in line[0]:
        del line[0]  # a variable before the command
    assert line[0] == "errata"
    context = root = typer.main.get_command(app)
    context = root.make_context("errata", line[1:])
    while hasattr(context.command, "resolve_command"):
        arguments = [*context._protected_args, *context.args]
        name, found, rest = context.command.resolve_command(context, arguments)
        context = found.make_context(name, rest, parent=context)
    assert context.command.name == words[-1]


def test_no_command_at_all_is_wrong_usage(errata: Errata) -> None:
    assert errata().status == 2
    assert errata("dead-letters").status == 2


def test_a_command_is_declared_once_and_stays_a_plain_function() -> None:
    before = list(app.registered_commands)
    body = command("once", example="errata once")(lambda: None)
    app.registered_commands[:] = before
    assert body() is None  # type: ignore[func-returns-value]


def test_every_command_is_declared_by_the_module_that_its_name_stands_for() -> None:
    told = {words[0] for words in EVERY}
    assert told == entry._MODULES.keys()
    code = "import sys; from errata.cli.entry import app, declare; declare([sys.argv[1]]); app()"
    for name in ("init", "schemas", "dead-letters"):
        done = subprocess.run(
            [sys.executable, "-c", code, name, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


HEAVY = {"polars", "sqlglot", "pyarrow", "confluent_kafka", "asyncio", "pythonjsonlogger"}


@pytest.mark.parametrize("words", [["init"], ["--help"], [], ["statsu"]])
def test_what_only_prints_help_loads_neither_polars_nor_a_client(words: list[str]) -> None:
    code = f"import sys; from errata.cli.entry import declare; declare({words})"
    assert HEAVY.isdisjoint(loaded(code))


def test_what_needs_no_cluster_loads_no_client(tmp_path: Path) -> None:
    assert_ok = "try: main()\nexcept SystemExit as end: assert end.code == 0"
    (tmp_path / "net.py").write_text(
        "from errata import Network\nnet = Network('n')\n"
        "fields = {'k': 'string', 'at': 'timestamp-millis'}\n"
        "t = net.source('t', fields=fields, identity=['k'], event_time='at')\n"
        "t.where('w', \"k > 'a'\")\n"
    )
    for words in (["explain", "net.py"], ["explain", "net.py", "--json"]):
        code = f"import sys; sys.argv = {['errata', *words]}\n"
        code += f"from errata.cli.entry import main\n{assert_ok}"
        assert {"sqlglot"} == (HEAVY - {"polars"}) & loaded(code, folder=tmp_path)


def loaded(code: str, *, folder: Path | None = None) -> set[str]:
    """Return what a program has imported."""
    code += "\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    return {*done.stdout.splitlines()[-1].split()}


def test_a_list_of_all_commands_has_the_help_that_they_have() -> None:
    code = (
        "import sys; from errata.cli.entry import app, declare; declare({})\n"
        "from typer.main import get_command\n"
        "for name, command in get_command(app).commands.items(): print(name, repr(command.help))"
    )
    listed, whole = (
        subprocess.run(
            [sys.executable, "-c", code.format(words)], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for words in ("[]", "")
    )
    assert [line.split()[0] for line in listed] == [*entry._MODULES]
    assert sorted(listed) == sorted(whole)


def test_ctrl_c_while_it_loads_ends_it_without_a_word(tmp_path: Path) -> None:
    code = (
        "import sys, signal\n"
        "class Late:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Late())\n"
        "from errata.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
