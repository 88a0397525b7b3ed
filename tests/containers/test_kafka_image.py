"""The Kafka image: what the official one's variables say, without root."""

import socket
from collections.abc import Iterator
from time import monotonic, sleep
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.containers.engine import LIMIT_S, docker

pytestmark = pytest.mark.docker

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind((HOST, 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def await_topics(admin: AdminClient, name: str) -> set[str]:
    deadline = monotonic() + LIMIT_S
    while True:
        try:
            return set(admin.list_topics(timeout=1.0).topics)
        except KafkaException:
            assert monotonic() < deadline, docker("logs", name)
            sleep(0.2)


@pytest.fixture
def broker(kafka_image: str) -> Iterator[tuple[str, AdminClient]]:
    port, controller = free_ports(2)
    environ = {
        "KAFKA_NODE_ID": "7",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"7@{HOST}:{controller}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
        "KAFKA_MAX_CONNECTIONS": "123",
        "KAFKA_HEAP_OPTS": "-Xmx300m",
    }
    options = ["--network", "host", "--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL"]
    options += [f"--env={name}={value}" for name, value in environ.items()]
    name = f"errata-{uuid4()}"
    begun = docker("run", "--detach", "--name", name, *options, kafka_image)
    try:
        assert begun.returncode == 0, begun.stderr
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
        await_topics(admin, name)
        yield name, admin
    finally:
        docker("rm", "--force", "--volumes", name)


def test_variables_are_the_brokers_settings_and_its_data_outlives_it(
    broker: tuple[str, AdminClient],
) -> None:
    name, admin = broker
    resource = ConfigResource(ResourceType.BROKER, "7")
    told = admin.describe_configs([resource])[resource].result(LIMIT_S)
    assert told["max.connections"].value == "123"
    topic = NewTopic("kept", 1, 1, config={"compression.type": "zstd"})
    admin.create_topics([topic])["kept"].result(LIMIT_S)
    docker("stop", name)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "143"
    docker("start", name)
    assert "kept" in await_topics(admin, name)


def test_it_runs_without_root(kafka_image: str) -> None:
    told = docker("inspect", "--format", "{{.Config.User}}", kafka_image)
    assert told.stdout.strip() == "1000"
