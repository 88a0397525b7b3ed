"""A broker for the tests that need one, and the rule that required tests are never skipped."""

import os
from collections.abc import Iterator

import pytest

from topics.broker import EmbeddedBroker
from topics.jars import JarsError
from topics.java import NoJavaError
from topics.kafka import KafkaCluster

NEEDS = {"kafka", "spark"}
REQUIRED = set(os.environ.get("ERRATA_REQUIRE", "").replace(",", " ").split())


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    try:
        running = EmbeddedBroker().__enter__()
    except (NoJavaError, JarsError) as error:
        pytest.skip(str(error))
    with running:
        yield running


@pytest.fixture(scope="session")
def cluster(broker: EmbeddedBroker) -> Iterator[KafkaCluster]:
    kafka = KafkaCluster(broker.settings)
    yield kafka
    kafka.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With ERRATA_REQUIRE="kafka spark" only tests that need something else may be skipped."""
    report = yield
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        needs = NEEDS & {marker.name for marker in item.iter_markers()}
        if needs <= REQUIRED:
            fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if REQUIRED and report.skipped:
        fail(report)
    return report


def fail(report) -> None:
    report.outcome = "failed"
    report.longrepr = f"skipped, but ERRATA_REQUIRE is {sorted(REQUIRED)}: {report.longrepr}"
