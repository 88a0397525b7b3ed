"""Three brokers that are also the three controllers, and what may happen to one of them.

Clients, the other brokers and the other controllers each reach a broker through a proxy, so that
links can be cut.

    with ThreeBrokers() as brokers:
        victim = brokers.leader("records", 0)
        with brokers.partition(victim):
            ...                                     # clients with brokers.settings
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from errata.topics.broker import EmbeddedBroker, new_cluster_id
from tests.faults.proxy import HOST, FrameProxy, Rule, free_ports

CLEANER: dict[str, str | int] = {
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": 1000,
    "log.initial.task.delay.ms": 1000,
}
"""Settings of brokers that look for something to compact or to delete by the second."""

LAG_MS = 2000
"""A follower that lags for so long is no longer in sync."""

_SETTINGS: dict[str, str | int] = CLEANER | {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "replica.lag.time.max.ms": LAG_MS,
    "replica.fetch.backoff.ms": 100,
    "broker.session.timeout.ms": 2500,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INNER",
}

_LISTENERS = ("PLAINTEXT", "INNER", "CONTROLLER")

_LIMIT_S = 120.0
"""How long a broker, or the cluster, may take to reach a state."""

_QUICK: dict[str, str | int] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 3000,
    "log_level": 0,
}


class ThreeBrokers:
    """A cluster of three brokers, 1 to 3, as a context manager.

    Topics have three copies, of which two must be in sync.

    Args:
        overrides: Broker settings that replace the defaults.
        environ: Environment variables of single brokers, as for the faults of `preload`.
        heap: Largest size of Java's heap, of each.
        seed: Of the proxies.
    """

    nodes = (1, 2, 3)

    def __init__(
        self,
        *,
        overrides: Mapping[str, str | int] | None = None,
        environ: Mapping[int, Mapping[str, str]] | None = None,
        heap: str = "256m",
        seed: int = 0,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="errata-brokers-"))
        self._overrides = dict(overrides or {})
        self._environ = dict(environ or {})
        self._heap = heap
        self._seed = seed
        self._open = ExitStack()
        self._links: dict[tuple[int, str], FrameProxy] = {}
        self._clients: dict[type[Any], Any] = {}
        self._processes: dict[int, int] = {}
        self.brokers: dict[int, EmbeddedBroker] = {}

    @property
    def settings(self) -> dict[str, str | int]:
        """Client settings to connect to the cluster through the proxies."""
        return {"bootstrap.servers": ",".join(self.proxy(node).address for node in self.nodes)}

    def proxy(self, node: int) -> FrameProxy:
        """Return the proxy between clients and a broker."""
        return self._links[node, "PLAINTEXT"]

    def __enter__(self) -> Self:
        """Start all; clean up if that fails."""
        try:
            self._enter()
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
        for broker in self.brokers.values():
            broker.kill()
        if Consumer in self._clients:
            self._clients[Consumer].close()
        self._clients.clear()
        self._open.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition; waits until there is one.

        Raises:
            TimeoutError: If there is none for long.
        """
        return self._await(f"a leader of '{topic}'", lambda: self._state(topic, partition)[0])

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Return the brokers whose copies of a partition are in sync."""
        return self._state(topic, partition)[1]

    def await_in_sync(self, topics: Collection[str]) -> None:
        """Wait until all copies of all partitions are in sync.

        Raises:
            TimeoutError: If they aren't for long.
        """
        self._await("all copies in sync", lambda: self._all_in_sync(topics))

    def kill(self, node: int) -> None:
        """Kill a broker with SIGKILL."""
        self.brokers[node].kill()
        self._processes.pop(node, None)

    def start(self, node: int) -> None:
        """Start a broker that was killed, and wait until it takes part.

        Raises:
            TimeoutError: If it does not for long.
        """
        self.brokers[node].start()
        self._await(f"broker {node}", lambda: node in self._alive())

    def stop_continue(self, node: int, seconds: float) -> None:
        """Let a broker stand still (SIGSTOP) for some seconds; after 2.5 s it counts as dead."""
        process = self._process(node)
        os.kill(process, signal.SIGSTOP)
        try:
            sleep(seconds)
        finally:
            os.kill(process, signal.SIGCONT)

    @contextmanager
    def partition(self, node: int) -> Iterator[None]:
        """Cut a broker off from clients and from the other two, which go on without it.

        It runs on and reaches itself. All its connections are closed, and new ones are closed as
        soon as they are made: it knows at once that it is alone, unlike one whose packets get lost
        (for that see `stop_continue`).
        """
        self.proxy(node).isolate()
        for listener in ("INNER", "CONTROLLER"):
            for other in self.nodes:
                self._links[other, listener].isolate(self._crossing(node, other))
        try:
            yield
        finally:
            for link in self._links.values():
                link.rejoin()
        self._await(f"broker {node}", lambda: node in self._alive())

    @contextmanager
    def without_copies(self, node: int) -> Iterator[None]:
        """Let nobody copy the partitions that a broker leads; all else goes on.

        Once a record is written to such a partition, and `LAG_MS` are over, its leader is alone in
        sync.
        """
        link = self._links[node, "INNER"]
        link.plan(Rule("Fetch", "cut", "before", count=10**9))
        try:
            yield
        finally:
            link.clear()

    def end(self, topic: str, partition: int = 0) -> int:
        """Return the offset behind the last record that all copies in sync have.

        Raises:
            TimeoutError: If the leader does not answer for long.
        """
        place = TopicPartition(topic, partition)
        found: list[int] = []

        def asked() -> bool:
            try:
                found.append(self._reader().get_watermark_offsets(place, timeout=3)[1])
            except KafkaException:  # a client may stay with a connection that leads nowhere
                self._clients.pop(Consumer).close()
                raise
            return True

        self._await(f"the end of '{topic}'", asked)
        return found[-1]

    def alter(self, topics: Collection[str], settings: Mapping[str, str]) -> None:
        """Alter settings of topics.

        Raises:
            TimeoutError: If the cluster refuses for long.
        """
        changed = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resources = [
            ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changed)
            for topic in topics
        ]

        def altered() -> bool:
            for answer in self._admin().incremental_alter_configs(resources).values():
                answer.result(5)
            return True

        self._await(f"settings of {', '.join(topics)}", altered)

    def clean_often(self, topics: Collection[str]) -> None:
        """Let a topic be compacted by the second, as far as its lag of compaction allows.

        The active segment is never compacted: it takes a later record to end it.
        """
        self.alter(topics, {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"})

    def _enter(self) -> None:
        ports = free_ports(3 * len(self.nodes))
        places = [(node, listener) for node in self.nodes for listener in _LISTENERS]
        behind = dict(zip(places, ports, strict=True))
        for place, port in behind.items():
            proxy = FrameProxy((HOST, port), seed=self._seed + place[0])
            self._links[place] = self._open.enter_context(proxy)
        voters = ",".join(
            f"{node}@{self._links[node, 'CONTROLLER'].address}" for node in self.nodes
        )
        cluster_id = new_cluster_id()
        for node in self.nodes:
            own: dict[str, str | int] = {
                "node.id": node,
                "controller.quorum.voters": voters,
                "listeners": ",".join(
                    f"{name}://{HOST}:{behind[node, name]}" for name in _LISTENERS
                ),
                "advertised.listeners": ",".join(
                    f"{name}://{self._links[node, name].address}" for name in _LISTENERS
                ),
            }
            self.brokers[node] = EmbeddedBroker(
                self.folder / str(node),
                port=behind[node, "PLAINTEXT"],
                overrides=_SETTINGS | own | self._overrides,
                cluster_id=cluster_id,
                environ=self._environ.get(node),
                heap=self._heap,
                limit_s=2 * _LIMIT_S,
            )
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(self.start, self.nodes))

    def _crossing(self, node: int, other: int) -> Callable[[int], bool]:
        """Return whether a connection to a broker crosses the cut around another, by its port."""

        def crosses(port: int) -> bool:
            with suppress(OSError):
                return _has_port(self._process(node), port) == (node != other)
            return node == other  # it is dead: none is its own

        return crosses

    def _process(self, node: int) -> int:
        """Return the process id of a broker's Java; the shell around it passes no SIGSTOP on."""
        properties = str(self.brokers[node].folder / "server.properties").encode()
        for folder in Path("/proc").iterdir() if node not in self._processes else ():
            if folder.name.isdecimal():
                with suppress(OSError):
                    command = (folder / "cmdline").read_bytes().split(b"\0")
                    if properties in command and b"kafka.Kafka" in command and command[1] != b"-c":
                        self._processes[node] = int(folder.name)
        if node not in self._processes:
            raise ProcessLookupError(f"broker {node} does not run")
        return self._processes[node]

    def _admin(self) -> Any:
        if AdminClient not in self._clients:
            self._clients[AdminClient] = AdminClient(self.settings | _QUICK)
        return self._clients[AdminClient]

    def _reader(self) -> Any:
        if Consumer not in self._clients:
            self._clients[Consumer] = Consumer(self.settings | _QUICK | {"group.id": "faults"})
        return self._clients[Consumer]

    def _alive(self) -> set[int]:
        return set(self._admin().list_topics(timeout=3).brokers)

    def _described(self, topic: str) -> dict[int, Any]:
        partitions: dict[int, Any] = (
            self._admin().list_topics(topic, timeout=3).topics[topic].partitions
        )
        return partitions

    def _state(self, topic: str, partition: int) -> tuple[int | None, set[int]]:
        described = self._described(topic)[partition]
        leader = described.leader if described.leader in self.nodes else None
        return leader, set(described.isrs)

    def _all_in_sync(self, topics: Collection[str]) -> bool:
        return all(
            set(partition.isrs) == set(partition.replicas)
            for topic in topics
            for partition in self._described(topic).values()
        )

    def _await(self, what: str, condition: Callable[[], Any]) -> Any:
        deadline = monotonic() + _LIMIT_S
        while True:
            with suppress(KafkaException, KeyError):
                if value := condition():
                    return value
            if monotonic() > deadline:
                raise TimeoutError(f"the three brokers need {what} within {_LIMIT_S:g} s")
            sleep(0.1)


def _has_port(process: int, port: int) -> bool:
    """Tell whether a process has a connection from a port of this machine."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(descriptor) in sockets:
                return True
    return False
