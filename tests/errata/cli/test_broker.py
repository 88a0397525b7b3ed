"""`errata broker`: a broker that answers, has the sources' topics, and ends with its process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.errata.conftest import errata_in
from tests.errata.network_file import write_network


@pytest.mark.kafka
def test_it_runs_until_ctrl_c_and_keeps_its_data(tmp_path: Path, environ: dict[str, str]) -> None:
    write_network(tmp_path)
    for life in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "errata", "broker", "tape.py", "--port", "0"],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            settings = {"bootstrap.servers": address}
            cluster = KafkaCluster(settings)
            assert cluster.partitions("figure-prices") == 1
            assert create_topics(settings, [TopicSpec("more", 1)]) == ([] if life else ["more"])
            cluster.close()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert (process.returncode, err) == (130, "")


@pytest.mark.kafka
def test_a_port_that_is_taken_is_named(tmp_path: Path, environ: dict[str, str], broker) -> None:
    port = str(broker.port)
    done = errata_in(tmp_path, environ, "broker", "--port", port)
    assert (done.status, done.out) == (1, "")
    assert port in done.err
