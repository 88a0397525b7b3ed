"""The embedded broker: a real single-node Apache Kafka, for the demo, tests and first steps."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from errata.schemas.errors import ErrataError
from errata.topics.java import class_path, find_java

_HOST = "127.0.0.1"
_LOG_TAIL = 15

# Java ends with its parent, however the parent dies: a watcher holds the read end of a pipe that
# the parent writes to. A line on it is a signal to pass on; its end means that the parent is gone.
_SHIM = """
exec 3<&0
"$@" </dev/null 3<&- & broker=$!
(
  while read -r signal <&3; do kill -s "$signal" $broker; done
  trap '' TERM
  kill -s KILL $broker
  while kill -s 0 $broker; do sleep 0.1; done
  [ -z "$ERRATA_TEMPORARY" ] || rm -rf -- "$ERRATA_TEMPORARY"
) 2>/dev/null & watcher=$!
wait $broker; status=$?
kill $watcher
exit $status
"""

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 1500,  # back in service sooner after a kill
    "broker.heartbeat.interval.ms": 300,
    "log.cleaner.dedupe.buffer.size": 16 << 20,
}

# The process is short-lived: the second compiler costs more than it saves.
_JAVA = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class BrokerError(ErrataError):
    """The embedded broker does not start, or has died."""


class PortTakenError(BrokerError):
    """Another process listens on the port that was chosen for the broker."""

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(
            f"the embedded broker needs port {port} of {_HOST}, but another process listens on it; "
            "stop that process, or choose another port (0: any free one)"
        )


class EmbeddedBroker:
    """A Kafka broker that ends with its parent process, as a context manager.

    It listens on 127.0.0.1 only, and dies with this process, even if that is killed (a child made
    by a bare fork() keeps it alive). The first use downloads Kafka's jars.

    Args:
        folder: Folder of the data, which is kept. By default a temporary folder, deleted at
            exit.
        port: The port to listen on; 0 takes a free one, the same one on every later `start`.
        overrides: Broker settings that replace the defaults.
        cluster_id: Identifies the cluster that it belongs to, as 22 letters and digits; by
            default a new one. Only the first start of a folder uses it.
        environ: Environment variables of its process, beside those of this one.
        heap: Largest size of Java's heap, as in `-Xmx`.
        limit_s: How long to wait until the broker answers.

    Raises:
        PortTakenError: If the port is in use.
        BrokerError: If it does not start; with the last lines of its log.
        NoJavaError, JarsError: If Java or the jars are not available.

    Example: ``with EmbeddedBroker() as broker: cluster = KafkaCluster(broker.settings)``
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        port: int = 0,
        overrides: Mapping[str, str | int] | None = None,
        cluster_id: str = "",
        environ: Mapping[str, str] | None = None,
        heap: str = "384m",
        limit_s: float = 60.0,
    ) -> None:
        self._temporary = tempfile.mkdtemp(prefix="errata-broker-") if folder is None else ""
        self.folder = Path(folder or self._temporary).absolute()
        self.port = port
        self._overrides = dict(overrides or {})
        self._cluster_id = cluster_id or new_cluster_id()
        self._environ = dict(environ or {})
        self._heap = heap
        self._limit_s = limit_s
        self._shim: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as HOST:PORT."""
        return f"{_HOST}:{self.port}"

    @property
    def settings(self) -> dict[str, str | int]:
        """Client settings to connect to this broker."""
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self.folder / "broker.log"

    def start(self) -> None:
        """Start the broker and wait until it answers; does nothing if it already runs."""
        if self._shim is not None and self._shim.poll() is None:
            return
        if self.port and not is_free(self.port):
            raise PortTakenError(self.port)
        java = find_java()
        jars = os.pathsep.join(map(str, class_path(java)))
        self.port, controller = self.port or _free_port(), _free_port()
        self._configure(controller)
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        options = [*_JAVA, f"-Xmx{self._heap}", logging, "-cp", jars]
        properties = str(self.folder / "server.properties")
        if not (self.folder / "data" / "meta.properties").exists():
            self._format([str(java), *options, "kafka.tools.StorageTool"], properties)
        with self.log.open("ab") as log:
            self._shim = subprocess.Popen(
                ["sh", "-c", _SHIM, "sh", str(java), *options, "kafka.Kafka", properties],
                stdin=subprocess.PIPE,
                bufsize=0,
                stdout=log,
                stderr=log,
                env=os.environ | self._environ | {"ERRATA_TEMPORARY": self._temporary},
                start_new_session=True,  # Ctrl-C at the terminal is for the parent to handle
            )
        self._await_answer()

    def check(self) -> None:
        """Check that the broker still runs.

        Raises:
            BrokerError: If it has ended by itself; with the last lines of its log.
        """
        status = None if self._shim is None else self._shim.poll()
        if status is not None:
            raise BrokerError(
                f"the embedded broker has ended with status {status}; "
                f"the end of {self.log}:\n{self._last_lines()}"
            )

    def stop(self) -> None:
        """Stop the broker cleanly, or by force after 20 s; its data is kept."""
        self._end("TERM", limit_s=20.0)

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a crash would; its data is kept."""
        self._end("KILL", limit_s=20.0)

    def __enter__(self) -> Self:
        """Start the broker; clean up if that fails."""
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and delete a temporary folder."""
        if self._temporary:
            self.kill()  # its data is deleted anyway: no need for a clean stop
            shutil.rmtree(self._temporary, ignore_errors=True)
        else:
            self.stop()

    def _configure(self, controller: int) -> None:
        addresses = {
            "listeners": f"PLAINTEXT://{_HOST}:{self.port},CONTROLLER://{_HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{self.port}",
            "controller.quorum.voters": f"1@{_HOST}:{controller}",
            "log.dirs": str(self.folder / "data"),
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "server.properties").write_text(
                "".join(f"{k}={v}\n" for k, v in (_SETTINGS | addresses | self._overrides).items())
            )
            (self.folder / "log4j2.properties").write_text(_LOGGING)
        except OSError as error:
            raise BrokerError(
                f"the embedded broker can't write to its folder {self.folder}: {error.strerror}; "
                "free disk space or choose another folder"
            ) from error

    def _format(self, tool: list[str], properties: str) -> None:
        completed = subprocess.run(
            [*tool, "format", "-c", properties, "-t", self._cluster_id],
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode:
            last_lines = "\n".join(
                (completed.stdout + completed.stderr).strip().splitlines()[-_LOG_TAIL:]
            )
            raise BrokerError(f"the embedded broker can't format {self.folder}:\n{last_lines}")

    def _await_answer(self) -> None:
        deadline = time.monotonic() + self._limit_s
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
        admin = AdminClient(self.settings | quick)
        assert self._shim is not None
        while self._shim.poll() is None:
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    return
            except KafkaException:
                pass  # not yet; the loop has its own limits
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(
                    f"the embedded broker did not answer within {self._limit_s:g} s; "
                    f"the end of {self.log}:\n{self._last_lines()}"
                )
        status = self._shim.returncode
        self._end("KILL", limit_s=1.0)
        raise BrokerError(
            f"the embedded broker ended with status {status} while starting; "
            f"the end of {self.log}:\n{self._last_lines()}"
        )

    def _end(self, signal: str, *, limit_s: float) -> None:
        shim, self._shim = self._shim, None
        if shim is None:
            return
        assert shim.stdin is not None
        try:
            shim.stdin.write(f"{signal}\n".encode())
            shim.wait(limit_s)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass  # already gone; or too slow, and then the end of the pipe kills it
        finally:
            shim.stdin.close()
            shim.wait()

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])


_LOGGING = """rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
"""


def new_cluster_id() -> str:
    """Return an identifier for a new cluster."""
    # urlsafe base64 may start with "-", which Kafka's tool parses as an option
    return "E" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def is_free(port: int) -> bool:
    """Return whether nothing listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
