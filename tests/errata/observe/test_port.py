"""Health, readiness and metrics of a process over HTTP."""

import logging
import socket
import time
from contextlib import ExitStack
from random import SystemRandom
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from errata.observe.metric_catalogue import COUNTER, Metric, Samples
from errata.observe.port import REFRESH_S, STUCK_S, PortError, Pulse, listening, serving
from errata.run.supervisor import Supervisor
from errata.run.supervisor_port import UpPort, ports_after
from tests.errata.exposed import exposed

HOST = "127.0.0.1"


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{HOST}:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def free_port(room: int = 1) -> int:
    """Return a port that is free, as those behind it are; not one that clients are given."""
    while True:
        port = SystemRandom().randrange(20_000, 30_000)
        try:
            with ExitStack() as held:
                for each in range(port, port + room):
                    held.enter_context(socket.create_server((HOST, each)))
            return port
        except OSError:
            continue


@pytest.fixture
def port() -> int:
    return free_port()


def test_a_process_that_starts_is_alive_and_not_ready(port: int) -> None:
    with serving((HOST, port)):
        assert asked(port, "/healthz") == (200, "ok: starting\n")
        assert asked(port, "/readyz") == (503, "it is starting\n")


def test_what_it_waits_for_is_told_until_it_is_ready(port: int) -> None:
    with serving((HOST, port)) as pulse:
        assert pulse.turn()
        pulse.update(
            ["task prices.0 is starting", "sweep.prices.1 replies to no request"], Samples()
        )
        why = "task prices.0 is starting\nsweep.prices.1 replies to no request\n"
        assert asked(port, "/readyz") == (503, why)
        pulse.update([], Samples())
        assert asked(port, "/readyz?verbose") == (200, "ready\n")
        pulse.stopping()
        assert asked(port, "/readyz") == (503, "it is stopping\n")
        assert asked(port, "/healthz") == (200, "ok: stopping\n")


def test_a_loop_that_does_not_turn_is_not_ready_and_in_the_end_not_alive(port: int) -> None:
    with serving((HOST, port)) as pulse:
        pulse.turn()
        pulse.update([], Samples())
        pulse.doing = "prices.3"
        pulse.turned_s = time.monotonic() - 6 * REFRESH_S
        status, why = asked(port, "/readyz")
        assert (status, why) == (503, "its loop has not turned for 6 s: prices.3\n")
        assert asked(port, "/healthz") == (200, "ok: prices.3\n")
        pulse.turned_s = time.monotonic() - STUCK_S - 1
        assert asked(port, "/healthz") == (503, "its loop has not turned for 121 s: prices.3\n")


def test_metrics_are_those_of_the_work_and_of_the_process(port: int) -> None:
    work = Samples()
    work.add(Metric("a_total", COUNTER, (), "A."), 1)
    with serving((HOST, port)) as pulse:
        pulse.turn()
        pulse.update([], work)
        found = exposed(asked(port, "/metrics")[1])
    assert found["a_total", ()] == 1
    assert found["errata_ready", ()] == 1
    assert found["process_resident_memory_bytes", ()] > 10_000_000
    assert abs(found["process_start_time_seconds", ()] - time.time()) < 100_000
    assert found["process_open_fds", ()] >= 3


def test_another_path_is_told_which_there_are(port: int) -> None:
    with serving((HOST, port)):
        assert asked(port, "/") == (
            404,
            "no such path; the port has /healthz, /readyz and /metrics\n",
        )


def test_a_client_that_says_nothing_holds_nobody_up(port: int) -> None:
    with serving((HOST, port)), socket.create_connection((HOST, port)):
        assert asked(port, "/healthz")[0] == 200


def test_a_port_that_is_taken_is_told(port: int) -> None:
    with serving((HOST, port)), pytest.raises(PortError, match=f"{port}: Address already in use"):
        serving((HOST, port)).__enter__()


def test_port_0_picks_one_and_says_which(caplog: pytest.LogCaptureFixture) -> None:
    with listening((HOST, 0), lambda path: (200, "text/plain", path)) as address:
        assert address is not None
        assert asked(address[1], "/readyz") == (200, "/readyz")
        (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(f"http://{HOST}:{address[1]}")


def test_without_an_address_nothing_is_opened_and_nobody_looks() -> None:
    with serving(None) as pulse:
        assert not pulse.turn()


# ---------------------------------------------------------------- errata up


def test_the_processes_of_up_have_the_ports_after_its_own() -> None:
    assert ports_after((HOST, 9100), ["a", "b"]) == {"a": (HOST, 9101), "b": (HOST, 9102)}
    assert ports_after(None, ["a"]) == {}
    free = ports_after((HOST, 0), ["a", "b"])
    assert len({port for _, port in free.values()} - {0}) == 2
    with pytest.raises(PortError, match="needs 2 ports after 65534"):
        ports_after((HOST, 65_534), ["a", "b"])


def test_up_is_ready_when_all_of_its_processes_are(port: int) -> None:
    one, other = free_port(), free_port()
    supervisor = Supervisor({"one": ["sleep", "60"], "other": ["sleep", "60"]}, say=print)
    pulse = Pulse()
    up = UpPort(pulse, supervisor, {"one": (HOST, one), "other": (HOST, other)})
    with listening((HOST, port), up.answer):
        assert asked(port, "/readyz")[1].splitlines()[0] == "it is starting"
        pulse.turn()
        pulse.update([], Samples())
        assert asked(port, "/readyz")[1] == "one: does not run\nother: does not run\n"
        with supervisor, serving((HOST, one)) as first:
            first.turn()
            first.update(["task a.0 is starting"], Samples())
            status, why = asked(port, "/readyz")
            assert (status, why) == (
                503,
                "one: task a.0 is starting\nother: does not respond yet\n",
            )
            with serving((HOST, other)) as second:
                for each in (first, second):
                    each.turn()
                    each.update([], Samples())
                assert asked(port, "/readyz") == (200, "ready\n")
            found = exposed(asked(port, "/metrics")[1])
            assert found["errata_process_running", (("process", "one"),)] == 1
            assert found["errata_process_restarts_total", (("process", "one"),)] == 0
