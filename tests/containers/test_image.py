"""The image: every role of it runs without root, on a file system that it can't write to."""

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from testcontainers.core.container import DockerContainer

from errata.schemas import revisions as frames
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster
from tests.conftest import QUICK_JAVA, QUICK_SPARK
from tests.containers.engine import LIMIT_S, docker
from tests.containers.tape import TAPE, Tape
from tests.containers.test_requirements import IMAGE, pins

pytestmark = pytest.mark.docker

STOP_S = 10.0
HOST = "127.0.0.1"


class Running:
    """A container that was started."""

    def __init__(self, container: DockerContainer) -> None:
        self._container: Any = container.get_wrapped_container()

    def printed(self) -> str:
        return str(self._container.logs(stderr=False).decode())

    def log(self) -> str:
        return str(self._container.logs().decode())

    def terminate(self) -> None:
        self._container.kill("SIGTERM")

    def stop(self) -> None:
        """End it now, if it has not ended by itself."""
        self._container.stop(timeout=0)

    def ended(self, *, limit_s: float) -> int:
        return int(self._container.wait(timeout=limit_s)["StatusCode"])

    def told(self, pattern: str) -> str:
        """Return what a pattern finds in its log, once it is there."""
        deadline = monotonic() + LIMIT_S
        while not (found := re.search(pattern, self.log())):
            self._container.reload()
            assert self._container.status == "running", self.log()
            assert monotonic() < deadline, self.log()
            sleep(0.2)
        return found[0]


class Containers:
    """Containers of the image, on this machine's network, that go with the test."""

    def __init__(self, image: str, stack: ExitStack, environ: Mapping[str, str]) -> None:
        self.image, self._stack, self._environ = image, stack, environ
        self.state = docker("volume", "create").stdout.strip()
        stack.callback(docker, "volume", "rm", "--force", self.state)

    def start(
        self, *arguments: str, folder: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> Running:
        """Start a container; only one that gets a folder has the network's file."""
        made = DockerContainer(self.image, network_mode="host", read_only=True)
        made.with_command([*arguments]).with_envs(**self._environ, **(environ or {}))
        made.with_tmpfs_mount("/tmp").with_volume_mapping(self.state, "/var/lib/errata", "rw")
        if folder is not None:
            made.with_volume_mapping(folder, "/network")
        return Running(self._stack.enter_context(made))

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        """Run a container to its end, which must be a good one; return what it printed."""
        running = self.start(*arguments, folder=folder)
        assert running.ended(limit_s=LIMIT_S) == 0, running.log()
        return running.printed()


@pytest.fixture
def containers(image: str, request: pytest.FixtureRequest) -> Iterator[Containers]:
    environ = dict(QUICK_SPARK)
    if request.node.get_closest_marker("kafka"):
        broker: EmbeddedBroker = request.getfixturevalue("broker")
        environ["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
    with ExitStack() as stack:
        yield Containers(image, stack, environ)


@pytest.fixture
def tape(tmp_path: Path, broker: EmbeddedBroker, cluster: KafkaCluster) -> Tape:
    return Tape(tmp_path, broker, cluster)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def test_commands_run_without_root_and_write_to_the_state_folder_alone(
    containers: Containers, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "tape.py").write_text(TAPE.format(name="alone"))
    line = {"op": "insert", "after": {"key": "a", "at": 5, "product": "x", "n": 2}}
    (tmp_path / "trades.jsonl").write_text(json.dumps(line))
    assert containers.run("--version").startswith("errata ")
    assert "bars" in containers.run("explain", "tape.py", "--json", folder=tmp_path)
    given = ["--input", "trades=trades.jsonl", "--table", "bars"]
    told = json.loads(containers.run("local", "tape.py", *given, folder=tmp_path))
    assert (told["m"], told["trades"]) == (7, 1)
    user = docker("inspect", "--format", "{{.Config.User}}", containers.image).stdout.strip()
    assert user == "1000"


def test_the_image_has_what_the_hashed_list_has_and_nothing_else(containers: Containers) -> None:
    code = "from importlib.metadata import *; print(*{d.name for d in distributions()})"
    entry = ["--rm", "--entrypoint", "python", containers.image, "-c", code]
    found = {re.sub("[-_.]+", "-", name).lower() for name in docker("run", *entry).stdout.split()}
    everywhere = {name for name, kept in pins(IMAGE).items() if not any(";" in k for k in kept)}
    assert everywhere | {"errata-streams"} <= found <= pins(IMAGE).keys() | {"errata-streams"}


def test_a_state_folder_that_can_not_be_written_is_told(containers: Containers) -> None:
    volume = f"{containers.state}:/var/lib/errata:ro"
    done = docker("run", "--rm", "--volume", volume, containers.image, "--version")
    assert done.returncode == 1
    assert "user 1000 can't write" in done.stderr


def test_the_driver_of_kubernetes_is_started_by_spark_submit(containers: Containers) -> None:
    driver = containers.start("driver", "--version", environ={"SPARK_DRIVER_BIND_ADDRESS": HOST})
    assert driver.ended(limit_s=LIMIT_S) == 0
    assert "version 4.3" in driver.log()


Executors = Callable[[Containers, str, int], Running]


def worker(containers: Containers, master: str, driver_port: int) -> Running:
    """Start a worker of the master's."""
    here = ["--host", HOST, "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
    return containers.start("spark-worker", *here, master)


def pod(containers: Containers, master: str, driver_port: int) -> Running:
    """Start an executor with what Kubernetes would tell it; the master has no worker."""
    opened = ["lang", "lang.invoke", "net", "nio", "util", "util.concurrent"]
    options = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in opened]
    options += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "-Dnone=a b"]
    options += ["--add-modules=jdk.incubator.vector"]
    environ = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{HOST}:{driver_port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_EXECUTOR_POD_IP": HOST,
        "SPARK_EXECUTOR_POD_NAME": "pod",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    told = {f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)}
    return containers.start("executor", environ=environ | told)


class Drivers:
    """Drivers of jobs on a cluster of Spark's, each with executors that are started for it."""

    def __init__(self, containers: Containers, folder: Path) -> None:
        self._containers, self._folder, self._count = containers, folder, 0
        self._port = free_port()
        here = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        self._master = containers.start("spark-master", *here)
        self._url = self._master.told(rf"spark://{HOST}:\d+")
        self._executors: Running | None = None

    def start(self, command: str, *options: str, executors: Executors) -> Running:
        settings = {
            "spark.executor.memory": "512m",
            "spark.executor.defaultJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.port": str(self._port),
        }
        arguments = [command, "tape.py", *options, "--master", self._url]
        arguments += [f"--conf={key}={value}" for key, value in settings.items()]
        if self._executors is not None:
            self._executors.stop()
        driver = self._containers.start(*arguments, folder=self._folder)
        self._count += 1
        self._master.told(f"(?s)(Registered app errata .*){{{self._count}}}")
        self._executors = executors(self._containers, self._url, self._port)
        return driver


def work(drivers: Drivers, tape: Tape, executors: Executors, *hours: int) -> None:
    """Let a job process some hours of the tape."""
    job = drivers.start("spark", executors=executors)
    tape.play(*hours)
    assert tape.bars()[1] == tape.expected(), executors.__name__
    job.terminate()
    assert job.ended(limit_s=STOP_S) == 0, executors.__name__


@pytest.mark.kafka
@pytest.mark.spark
def test_executors_in_containers_work_without_the_networks_file(
    containers: Containers, tape: Tape
) -> None:
    containers.start("run", "tape.py", "--scope", "ingest.trades", folder=tape.folder)
    work(Drivers(containers, tape.folder), tape, worker, 0)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_an_executor_in_a_pod_goes_on_from_where_a_worker_was_and_an_audit_finds_all_right(
    containers: Containers, tape: Tape
) -> None:
    drivers = Drivers(containers, tape.folder)
    containers.start("run", "tape.py", "--scope", "ingest.trades", folder=tape.folder)
    work(drivers, tape, worker, 0, 30)
    work(drivers, tape, pod, 3)
    revisions, content = tape.bars()
    assert (revisions["op"] == frames.REPLACE).any()

    audit = drivers.start("reconcile", "--json", executors=worker)
    assert audit.ended(limit_s=LIMIT_S) == 0, audit.log()
    (told,) = map(json.loads, audit.printed().splitlines())
    assert (told["missing"], told["unexpected"], told["different"]) == (0, 0, 0)
    assert (told["status"], told["tuples"]) == ("ok", len(content))


@pytest.mark.kafka
@pytest.mark.spark
def test_sigterm_ends_a_whole_network_in_a_container_in_good_order(
    containers: Containers, tape: Tape
) -> None:
    up = containers.start("up", "tape.py", folder=tape.folder)
    tape.play(0)
    assert tape.bars()[1] == tape.expected()
    up.terminate()
    assert up.ended(limit_s=STOP_S) == 0
    assert "Traceback" not in up.log()
    assert "killed" not in up.log()
