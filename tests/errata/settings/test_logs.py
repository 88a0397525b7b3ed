"""Lines for people, or JSON for programs."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from errata.run.exit_status import complain, reported
from errata.run.supervisor import ProcessFailedError, Supervisor, forward_line, print_line
from errata.settings import logs
from errata.topics import secrets
from errata.topics.cluster import LOGGER
from tests.errata.conftest import Errata
from tests.errata.network_file import write_network

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """What was written to standard error since the last call; logging is as before afterwards."""
    root, propagate = logging.getLogger(), LOGGER.propagate
    before, level = list(root.handlers), root.level
    yield lambda: capsys.readouterr().err.splitlines()
    root.handlers[:] = before
    root.setLevel(level)
    LOGGER.propagate = propagate
    logging.captureWarnings(False)
    logs.context.clear()


def test_people_get_lines_from_warnings_up(lines: Lines) -> None:
    logs.set_up()
    logging.getLogger("errata").info("not this")
    logging.getLogger("errata").warning("task %s starts again", "a.0")
    logging.getLogger("errata.kafka").error("broker away")
    assert lines() == ["errata: task a.0 starts again"]


def test_programs_get_a_line_of_json_a_record_whatever_is_in_it(lines: Lines) -> None:
    logs.set_up(logs.JSON)
    logs.context.update(network="tape", task="totals.0")
    began = datetime.now(UTC)
    logging.getLogger("errata").warning("two\nlines, \x1b[31m and 'quotes\"")
    (line,) = lines()
    told = json.loads(line)
    at = told.pop("time")
    assert at.endswith("Z")
    assert abs((datetime.fromisoformat(at) - began).total_seconds()) < 60
    assert told == {
        "level": "WARNING",
        "logger": "errata",
        "message": "two\nlines, \x1b[31m and 'quotes\"",
        "network": "tape",
        "task": "totals.0",
    }
    assert "\x1b" not in line


def test_an_exception_is_a_field(lines: Lines) -> None:
    logs.set_up(logs.JSON)
    with pytest.raises(SystemExit), reported("errata run"):
        raise KeyError("gone")
    (line,) = lines()
    told = json.loads(line)
    assert told["level"] == "ERROR"
    assert told["message"] == "internal error in `errata run`: KeyError: 'gone'"
    assert "Traceback" in told["exception"]


def test_neither_an_exception_nor_what_is_attached_shows_a_secret(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", {"hunter2"})
    logs.set_up(logs.JSON)
    try:
        raise ValueError("hunter2 is wrong")
    except ValueError:
        logging.getLogger("other").exception("with %s", "hunter2", extra={"login": "hunter2"})
    (line,) = lines()
    told = json.loads(line)
    assert list(told) == ["time", "level", "logger", "message", "exception"]
    assert told["message"] == "with ***"
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert told["exception"].endswith("\nValueError: *** is wrong")


def test_a_complaint_has_no_traceback_unless_asked_for(lines: Lines) -> None:
    logs.set_up(logs.JSON)
    complain("no broker answers")
    assert "exception" not in json.loads(lines()[0])


def test_what_librdkafka_says_is_among_it(lines: Lines) -> None:
    logs.set_up(logs.JSON)
    LOGGER.warning("FAIL [thrd:one:9092/bootstrap]: connect failed")
    (line,) = lines()
    assert json.loads(line)["logger"] == "errata.kafka"
    logs.set_up(logs.TEXT, "info")
    LOGGER.warning("connect failed")
    assert lines() == ["errata: connect failed"]
    logs.set_up(logs.TEXT)
    LOGGER.warning("connect failed")
    assert lines() == []


def test_a_supervisor_passes_json_on_with_the_name_of_the_process(lines: Lines) -> None:
    logs.set_up(logs.JSON)
    told = {"time": "2026-11-22T00:00:00.000Z", "level": "WARNING", "message": "behind"}
    assert forward_line("totals", json.dumps(told), print_line) == "behind"
    assert (
        forward_line("spark", "plain [] words", print_line)
        == "spark: plain [] words".partition(": ")[2]
    )
    assert forward_line("spark", '{"not": "a record"}', print_line) == '{"not": "a record"}'
    one, two, three = map(json.loads, lines())
    assert one == told | {"process": "totals"}
    assert (two["logger"], two["message"]) == ("errata.up", "spark: plain [] words")
    assert three["message"] == 'spark: {"not": "a record"}'


def test_a_process_that_failed_is_told_by_its_last_message(lines: Lines) -> None:
    logs.set_up(logs.JSON)
    script = """import json, sys; print(json.dumps({"message": "no such scope"})); sys.exit(1)"""
    supervisor = Supervisor({"one": [sys.executable, "-c", script]})
    with supervisor, pytest.raises(ProcessFailedError, match=r": no such scope$"):
        poll_for_ever(supervisor)


def poll_for_ever(supervisor: Supervisor) -> None:
    while True:
        supervisor.poll()


@pytest.mark.parametrize(("form", "is_json"), [("json", True), ("", False)])
def test_the_setting_holds_from_the_first_line_on(
    tmp_path: Path, environ: dict[str, str], errata_process: Errata, form: str, is_json: bool
) -> None:
    write_network(tmp_path)
    environ["ERRATA_LOG__FORMAT"] = form
    ended = errata_process("run", "tape.py", "--scope", "prices")
    assert ended.status == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("{" if is_json else "errata: no Kafka cluster is configured")
    if is_json:
        assert json.loads(line)["message"].startswith("no Kafka cluster is configured")


def test_a_setting_that_is_wrong_is_told_for_people(
    tmp_path: Path, environ: dict[str, str], errata_process: Errata
) -> None:
    write_network(tmp_path)
    environ |= {"ERRATA_LOG__FORMAT": "yaml", "KAFKA_BOOTSTRAP_SERVERS": "nowhere:1"}
    ended = errata_process("run", "tape.py", "--scope", "prices")
    assert (ended.status, ended.err) == (
        1,
        "errata: log.format needs to be text or json; correct it in errata.toml, or "
        "ERRATA_LOG__FORMAT\n",
    )
