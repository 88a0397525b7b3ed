"""The demo in containers: an audit finds nothing after any fault of one.

The tape is played again for each step: trades that are there are inserted again, cancelled ones
come back and go.
"""

import json
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.containers.demo import Demo
from tests.containers.engine import TAG, docker, inject

pytestmark = [pytest.mark.docker, pytest.mark.kafka]

PREVIOUS = "errata:previous"
ROLES = ("ingest", "upstream", "downstream", "sweep-trades", "sweep-totals")


@pytest.fixture(scope="module")
def demo(image: str, kafka_image: str) -> Iterator[Demo]:
    docker("tag", image, PREVIOUS)
    demo = Demo(image=PREVIOUS, kafka_image=kafka_image)
    try:
        demo.up()
        yield demo
    finally:
        demo.down()
        docker("rmi", PREVIOUS)


@pytest.fixture
def fine(demo: Demo) -> Iterator[Demo]:
    """The demo, with a tape that plays; nothing may differ once a test is over."""
    demo.play()
    yield demo
    demo.audit()


def test_the_demo_comes_up(fine: Demo) -> None:
    assert {service: len(fine.containers(service)) for service in ROLES} == {
        "ingest": 1,
        "upstream": 2,
        "downstream": 2,
        "sweep-trades": 1,
        "sweep-totals": 1,
    }
    for role in ROLES:
        fine.await_ready(role)


def test_the_page_needs_the_token_that_its_log_has(fine: Demo) -> None:
    address, _, token = fine.page().partition("?token=")
    asked = Request(f"{address}api/network", headers={"Authorization": f"Bearer {token}"})
    with urlopen(asked, timeout=30) as answer:
        assert json.load(answer)["network"] == "tape"
    with pytest.raises(HTTPError, match="401") as refused:
        urlopen(address, timeout=30)
    refused.value.close()


def test_sigterm_ends_each_role_in_good_order_before_docker_kills_it(fine: Demo) -> None:
    fine.compose("stop", *ROLES)
    for role in ROLES:
        for name in fine.containers(role):
            status = docker("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip()
            assert status == "0", f"{role}: {docker('logs', '--tail', '20', name).stderr}"
    fine.up()


@pytest.mark.slow
def test_a_scope_is_scaled_to_three_and_back_in_mid_stream(fine: Demo) -> None:
    fine.up("upstream", upstream=3)
    assert len(fine.containers("upstream")) == 3
    fine.await_played()
    fine.play()
    fine.up("upstream", upstream=1)
    assert len(fine.containers("upstream")) == 1


def test_one_container_of_each_kind_is_killed_and_started_again(fine: Demo) -> None:
    for service in ("ingest", "upstream", "downstream", "sweep-trades"):
        name = fine.containers(service)[0]
        inject("kill", name)
        inject("start", name)


@pytest.mark.slow
def test_the_broker_is_killed_and_started_again(fine: Demo) -> None:
    (broker,) = fine.containers("kafka-1")
    inject("kill", broker)
    inject("start", broker)
    fine.await_healthy(broker)
    docker("wait", *fine.containers("ticker"))  # a user's producer may give up meanwhile
    fine.play()


@pytest.mark.slow
def test_links_to_the_network_are_cut_and_healed(fine: Demo) -> None:
    network = f"{fine.project}_default"
    cut = [fine.containers(service)[0] for service in ("downstream", "sweep-trades")]
    for name in cut:
        inject("network", "disconnect", network, name)
    fine.await_played()
    for name in cut:
        inject("network", "connect", network, name)


@pytest.mark.slow
def test_roles_are_upgraded_one_at_a_time(fine: Demo) -> None:
    fine.environ["ERRATA_IMAGE"] = TAG
    for role in ROLES:
        fine.up(role)
        fine.await_ready(role)
        images = {
            docker("inspect", "--format", "{{.Config.Image}}", name).stdout.strip()
            for name in fine.containers(role)
        }
        assert images == {TAG}


@pytest.mark.slow
def test_spark_comes_last_and_its_bars_are_audited_as_a_newcomer_would(demo: Demo) -> None:
    del demo.environ["AUDIT"]  # as it is by itself, the audit waits for them
    demo.play()
    demo.up("spark")
    assert "and 16 bars on Spark" in demo.audit()
