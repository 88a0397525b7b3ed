"""The Kafka image: what the official one's variables say, without root."""

import socket
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from testcontainers.core.container import DockerContainer

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


def await_topics(admin: AdminClient, broker: DockerContainer) -> set[str]:
    deadline = monotonic() + LIMIT_S
    while True:
        try:
            return set(admin.list_topics(timeout=1.0).topics)
        except KafkaException:
            assert monotonic() < deadline, broker.get_logs()
            sleep(0.2)


@pytest.fixture
def broker(kafka_image: str) -> Iterator[tuple[DockerContainer, AdminClient]]:
    port, controller = free_ports(2)
    made = DockerContainer(kafka_image, network_mode="host", read_only=True, cap_drop=["ALL"])
    made.with_tmpfs_mount("/tmp", "exec").with_envs(
        KAFKA_NODE_ID="7",
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_LISTENERS=f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_CONTROLLER_QUORUM_VOTERS=f"7@{HOST}:{controller}",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        KAFKA_LOG_DIRS="/var/lib/kafka/data",
        KAFKA_MAX_CONNECTIONS="123",
        KAFKA_HEAP_OPTS="-Xmx300m",
    )
    with made:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
        await_topics(admin, made)
        yield made, admin


def test_variables_are_the_brokers_settings_and_its_data_outlives_it(
    broker: tuple[DockerContainer, AdminClient],
) -> None:
    container, admin = broker
    running: Any = container.get_wrapped_container()
    resource = ConfigResource(ResourceType.BROKER, "7")
    told = admin.describe_configs([resource])[resource].result(LIMIT_S)
    assert told["max.connections"].value == "123"
    topic = NewTopic("kept", 1, 1, config={"compression.type": "zstd"})
    admin.create_topics([topic])["kept"].result(LIMIT_S)
    running.stop()
    assert running.wait()["StatusCode"] == 143
    running.start()
    assert "kept" in await_topics(admin, container)


def test_it_runs_without_root(kafka_image: str) -> None:
    told = docker("inspect", "--format", "{{.Config.User}}", kafka_image)
    assert told.stdout.strip() == "1000"
