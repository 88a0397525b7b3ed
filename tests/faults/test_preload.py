"""What the shim does to Python processes and to a broker, while they run."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from os import environ as OURS
from pathlib import Path
from threading import Timer

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from errata.topics.broker import EmbeddedBroker
from errata.topics.java import JarsError, NoJavaError
from tests.faults.preload import TAKEN_S, compiled, environ, harmed, write

if compiled() is None:
    pytest.skip("needs Linux and a C compiler named cc", allow_module_level=True)

HOUR_S, LIMIT_S = 3600, 20


@pytest.fixture
def control(tmp_path: Path) -> Path:
    path = tmp_path / "control"
    write(path)
    return path


@pytest.fixture
def run(control: Path) -> Iterator[Callable[[str], Callable[[], str]]]:
    """Run a program that prints a line for each line that it is sent."""
    opened = ExitStack()

    def started(program: str) -> Callable[[], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env=OURS | environ(control),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        limit = Timer(LIMIT_S, process.kill)
        limit.start()
        opened.callback(limit.cancel)
        opened.callback(process.communicate)

        def line() -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        return line

    with opened:
        yield started


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(TAKEN_S / 4)


CLOCKS = """
import sys, time, datetime, pyarrow
for _ in sys.stdin:
    ahead = [time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp()]
    print(*ahead, time.monotonic(), flush=True)
"""


def test_the_wall_clock_is_shifted_while_the_process_runs_and_the_other_clock_is_not(control, run):
    line = run(CLOCKS)

    def shifts_s() -> list[int]:
        *walls, steady = map(float, line().split())
        assert 0 <= time.monotonic() - steady < 60
        return [round((wall - time.time()) / HOUR_S) for wall in walls]

    assert shifts_s() == [0, 0, 0]
    for hours in (1, -1, 0):
        write(control, shift_s=hours * HOUR_S - 0.25)
        await_that(lambda hours=hours: shifts_s() == [hours] * 3)


WAITS = """
import sys, threading, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "any", "log_level": 0})
consumer.subscribe(["any"])
for _ in sys.stdin:
    began = time.monotonic()
    threading.Event().wait(0.05)
    consumer.poll(0.05)
    print(int(time.time() - began), flush=True)
"""


@pytest.mark.parametrize("hours", [-1, 1])
def test_waits_last_as_long_as_without_a_shift(control, run, hours):
    write(control, shift_s=hours * HOUR_S)
    assert run(WAITS)()  # an hour ahead would be an hour of waiting


SYNCS = """
import os, sys, tempfile
from rocksdict import Rdict
with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "file"), "w") as file:
    store = Rdict(os.path.join(folder, "store"))
    for line in sys.stdin:
        failed = []
        for sync in (lambda: os.fsync(file.fileno()), lambda: (store.put("a", "b"), store.flush())):
            try: sync()
            except Exception as error: failed.append(str(error))
        print(" ".join(failed), flush=True)
    try: store.close()
    except Exception: pass
"""


def test_the_syncs_of_python_and_of_rocksdb_are_slow_and_then_fail(control, run):
    line = run(SYNCS)
    assert line() == ""
    assert harmed(control) == 0
    write(control, fsync_ms=30)
    await_that(lambda: line() == "" and harmed(control) > 2)
    write(control, fsync_fails=True)
    await_that(lambda: line().count("Input/output error") == 2)


@pytest.mark.kafka
def test_a_broker_has_another_time_a_slow_disk_and_at_last_a_broken_one(control):
    flushing = {"log.flush.interval.messages": 1}
    try:
        running = EmbeddedBroker(overrides=flushing, environ=environ(control)).__enter__()
    except (NoJavaError, JarsError) as error:
        pytest.skip(str(error))
    with running as broker:
        admin = AdminClient(broker.settings)
        topic = NewTopic("any", 1, config={"message.timestamp.type": "LogAppendTime"})
        admin.create_topics([topic])["any"].result(20)
        quick = {"linger.ms": 0, "message.timeout.ms": 3000, "log_level": 0}
        producer = Producer(broker.settings | quick)

        def appended_s() -> float:
            took: list[float] = []
            producer.produce("any", b"", callback=lambda _, message: took.append(message))
            producer.flush(20)
            [message] = took
            if message.error() is not None:
                raise KafkaException(message.error())
            return message.timestamp()[1] / 1000

        assert abs(appended_s() - time.time()) < HOUR_S / 2
        write(control, shift_s=HOUR_S)
        await_that(lambda: abs(appended_s() - time.time() - HOUR_S) < HOUR_S / 2)
        assert harmed(control) == 0
        write(control, fsync_ms=20)
        await_that(lambda: appended_s() > 0 and harmed(control) > 2)
        write(control, fsync_fails=True)
        with pytest.raises(KafkaException):
            await_that(lambda: appended_s() < 0)
        # of the topic's log, or of the controller's: whichever is flushed first ends the broker
        assert "Input/output error" in broker.log.read_text()
