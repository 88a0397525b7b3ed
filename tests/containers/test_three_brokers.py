"""The demo on three brokers, any one of which may be lost, with a schema registry beside them."""

from collections.abc import Iterator

import pytest

from tests.containers.demo import Demo
from tests.containers.engine import docker, inject

pytestmark = [pytest.mark.docker, pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def demo(image: str, kafka_image: str, registry_image: str) -> Iterator[Demo]:
    demo = Demo("--env-file", "docker/three.env", image=image, kafka_image=kafka_image)
    demo.environ |= {
        "COMPOSE_PROFILES": "three,registry",
        "REGISTRY_IMAGE": registry_image,
        "SCHEMA_REGISTRY_URL": "http://registry:8080/apis/ccompat/v7",
        "TICKER_SECONDS": "25",  # it plays until after the others have missed a broker
    }
    try:
        demo.up(upstream=1, downstream=1)
        yield demo
    finally:
        demo.down()


def test_a_broker_is_killed_in_mid_stream_and_nothing_differs_without_it(demo: Demo) -> None:
    (lost,), (ticker,) = demo.containers("kafka-2"), demo.containers("ticker")
    demo.await_ready("ingest")
    demo.await_played()
    demo.play()
    inject("kill", lost)
    assert docker("inspect", "--format", "{{.State.Running}}", ticker).stdout.strip() == "true"
    demo.audit()
    assert docker("inspect", "--format", "{{.State.Running}}", lost).stdout.strip() == "false"
