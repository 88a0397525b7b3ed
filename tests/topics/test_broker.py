"""The embedded broker's life."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from errata.topics.broker import BrokerError, EmbeddedBroker, PortTakenError
from errata.topics.kafka import KafkaCluster


def eventually(condition) -> bool:
    """Wait up to 20 s for another process; the wait is only as long as it takes."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_that_another_process_has_is_one_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = EmbeddedBroker(port=port)
        with pytest.raises(PortTakenError, match=f"needs port {port} of 127.0.0.1"), broker:
            pass
    assert not broker.folder.exists()


@pytest.mark.kafka
def test_the_broker_listens_on_the_loopback_alone_and_leaves_nothing_behind(broker):
    with EmbeddedBroker() as other:
        assert other.port != broker.port
        assert KafkaCluster(other.settings)
        table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        local = [line.split()[1] for line in table.splitlines() if f":{other.port:04X}" in line]
        assert any(address.startswith("0100007F") or "0100007F" in address for address in local)
        assert not any(set(address.split(":")[0]) == {"0"} for address in local)
        folder, port = other.folder, other.port
    assert not folder.exists()
    assert not answers(port)


@pytest.mark.kafka
def test_a_stopped_broker_starts_again_on_its_port_and_its_crash_at_start_is_told(tmp_path):
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    port = broker.port
    broker.start()  # runs already
    broker.stop()
    broker.stop()
    assert not answers(port)
    with pytest.raises(
        BrokerError, match=r"ended with status \d+ while starting(.|\n)*log.cleaner.dedupe"
    ):
        EmbeddedBroker(tmp_path, overrides={"log.cleaner.dedupe.buffer.size": 1}).start()
    broker.start()
    assert (broker.port, answers(port)) == (port, True)
    broker.kill()
    assert not answers(port)


@pytest.mark.kafka
def test_a_setting_that_kafka_refuses_is_told_with_the_reason(tmp_path):
    with pytest.raises(BrokerError, match=r"num\.io\.threads"):
        EmbeddedBroker(tmp_path, overrides={"num.io.threads": "many"}).start()


@pytest.mark.kafka
def test_the_broker_and_its_data_go_when_its_parent_is_killed():
    program = (
        "import sys; from errata.topics.broker import EmbeddedBroker\n"
        "with EmbeddedBroker() as b: print(b.port, b.folder, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    port, folder = parent.stdout.readline().split()
    assert answers(int(port))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    assert eventually(lambda: not answers(int(port)))
    assert eventually(lambda: not Path(folder).exists())


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match="can't write to its folder"):
        EmbeddedBroker(tmp_path / "file")._configure(1)
