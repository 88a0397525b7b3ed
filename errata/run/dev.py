"""A network with a broker of its own, for its author: started anew whenever a file is saved."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from errata.client.feeding import Feeder
from errata.client.input_file import CsvColumns, open_input, read_input
from errata.deploy.deployment import prepare
from errata.deploy.reset import delete_remains, remains
from errata.processors.declare.declarations import BOUND, Source
from errata.processors.declare.network import Network
from errata.processors.plan.compiled import CompiledPlan
from errata.run.readiness import Readiness
from errata.run.supervisor import ProcessFailedError, Supervisor, network_commands, page_command
from errata.schemas.errors import ErrataError
from errata.settings.loading import file_of, load
from errata.settings.place import Place
from errata.topics.admin import create_topics, delete_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry_server import registry
from errata.topics.settings import TopicSpec

ENDINGS = (".jsonl", ".ndjson", ".csv", ".jsonl.gz", ".csv.gz")
"""Of the file beside a network that is fed to a source of its name."""
_LOOK_S = 0.5
_MOST_FILES = 2_000
_OTHERS = ("site-packages", "node_modules", "__pycache__")


def source_topics(network: Network) -> list[TopicSpec]:
    """Return the topics of a network's own sources, as their producers would make them."""
    sources = (box for box in network.declarations.values() if isinstance(box, Source))
    return [
        TopicSpec(source.topic or source.name, source.partitions or 1)
        for source in sources
        if source.envelope != BOUND
    ]


def sample_inputs(network: Network, folder: Path) -> dict[str, list[str]]:
    """Return by source the file beside a network that has its name, if there is one."""
    names = [n for n, box in network.declarations.items() if isinstance(box, Source)]
    files = {name: [folder / f"{name}{ending}" for ending in ENDINGS] for name in names}
    found = {name: [path for path in paths if path.is_file()] for name, paths in files.items()}
    return {name: [str(paths[0])] for name, paths in found.items() if paths}


def folder_of(reference: str) -> Path:
    """Return the folder of a network's file; of a module, the working folder."""
    file, _ = file_of(reference)
    return Path.cwd() if file is None else file.resolve().parent


class Session:
    """The processes of a network, with a page, from one start to the next.

    Args:
        reference: The network's reference on a command line.
        place: The settings of its cluster and state folder.
        environ: The environment of its processes.
        port: The port of its page; None: no page.
        inputs: By source, the files to feed; None: those that `sample_inputs` finds.
        feeder: Options of `Feeder`.
        columns: Columns of CSV files that are no fields.
        say: Prints a line.
    """

    def __init__(
        self,
        reference: str,
        place: Place,
        *,
        environ: Mapping[str, str],
        port: int | None,
        inputs: Mapping[str, Sequence[str]] | None,
        feeder: Mapping[str, float | None],
        columns: CsvColumns,
        say: Callable[[str], None],
    ) -> None:
        self.reference, self.place, self.environ, self.port = reference, place, environ, port
        self.inputs, self.feeder, self.columns, self.say = inputs, feeder, columns, say
        self.cluster = KafkaCluster(place.kafka)
        self._network: Network | None = None
        self._supervisor: Supervisor | None = None
        self._readiness: Readiness | None = None
        self._ended = threading.Event()
        self._feeding: list[threading.Thread] = []

    def start(self, network: Network) -> None:
        """Deploy a network and start its processes.

        Raises:
            ErrataError: If that can't be done; then nothing runs.
        """
        plan = self._prepared(network)
        commands = network_commands(self.reference, plan, most=1)
        page = {} if self.port is None else page_command(self.reference, self.port, commands)
        self._network, self._ended = network, threading.Event()
        self._readiness = Readiness(self.cluster, plan)
        self._supervisor = Supervisor(
            commands | page, environ=self.environ, say=self._say_of_processes, optional=page
        )
        self._supervisor.start()
        self._plan = plan

    def _prepared(self, network: Network) -> CompiledPlan:
        create_topics(self.place.kafka, source_topics(network))
        return prepare(network, self.place, self.cluster)

    def turn(self) -> None:
        """Restart processes that have died; begin to feed once all tasks have begun.

        A process that no restart helps ends all of them; the next start may.
        """
        if self._supervisor is None:
            return
        try:
            self._supervisor.poll()
        except ProcessFailedError as error:
            self.say(f"{error}; save the file to start again")
            self.stop()
            return
        if self._readiness is not None and not self._readiness.waiting():
            self.say(f"ready: {self._readiness.tasks} tasks run")
            self._readiness.close()
            self._readiness = None
            self._feed()

    def stop(self) -> None:
        """End all processes and the feeding; safe to call twice."""
        self._ended.set()
        for thread in self._feeding:
            thread.join()
        self._feeding = []
        if self._readiness is not None:
            self._readiness.close()
            self._readiness = None
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None

    def forget(self) -> None:
        """Delete what the network has made, and what it was fed."""
        if self._network is None:
            return
        remaining = remains(self._network, self.place, self.cluster, sinks=True)
        for _ in delete_remains(remaining, self.place):
            pass
        fed = self._inputs(self._network)
        topics = {box.topic or name for name, box in self._network.declarations.items()
                  if isinstance(box, Source) and name in fed}  # fmt: skip
        if not self.place.registry:  # the schemas of what was there need not be compatible
            topics.add(SCHEMAS_TOPIC)
        delete_topics(self.place.kafka, sorted(topics))
        self._network = None

    def close(self) -> None:
        """End everything."""
        self.stop()
        self.cluster.close()

    # ---------------------------------------------------------------- feeding

    def _inputs(self, network: Network) -> Mapping[str, Sequence[str]]:
        if self.inputs is not None:
            return self.inputs
        return sample_inputs(network, folder_of(self.reference))

    def _feed(self) -> None:
        assert self._network is not None
        for source, files in self._inputs(self._network).items():
            thread = threading.Thread(target=self._feed_one, args=(source, files), daemon=True)
            self._feeding.append(thread)
            thread.start()

    def _feed_one(self, source: str, files: Sequence[str]) -> None:
        try:
            kind = self._plan.topology.sources[source]
            cluster = KafkaCluster(self.place.kafka)
            with ExitStack() as stack:
                stack.callback(cluster.close)
                feeder = Feeder(
                    kind, cluster, registry(cluster, self.place.registry),
                    stop=self._ended.is_set, **self.feeder,  # type: ignore[arg-type]
                )  # fmt: skip
                self.say(f"feeding {source} from {', '.join(files)}")
                for file in files:
                    stream = stack.enter_context(open_input(file))
                    fed = feeder.feed(
                        read_input(stream, file=file, arc=kind.arc, columns=self.columns)
                    )
            if not self._ended.is_set():
                refused = sum(fed.refused.values())
                rest = (
                    f"; {refused} lines are left out, the first is {fed.first}" if refused else ""
                )
                self.say(f"{source}: {fed.sent} records sent in {fed.epochs} epochs{rest}")
        except ErrataError as error:
            self.say(f"{source} is not fed: {error}")

    def _say_of_processes(self, line: str) -> None:
        if not line.startswith("started "):
            self.say(line)


class Watched:
    """The files that a network may depend on, and whether one was saved.

    Args:
        reference: The network's reference.
        inputs: Other files.
    """

    def __init__(self, reference: str, inputs: Sequence[str]) -> None:
        self.folder = folder_of(reference)
        self._inputs = [Path(file) for file in inputs]
        self._looked_s = monotonic()
        self._known = dict(self._times())

    def changed(self) -> list[str]:
        """Return the names of files that were saved, made or deleted since the last call."""
        if monotonic() < self._looked_s + _LOOK_S:
            return []
        self._looked_s = monotonic()
        now = dict(self._times())
        before, self._known = self._known, now
        return sorted(p.name for p in {*now, *before} if now.get(p) != before.get(p))

    def _times(self) -> Iterator[tuple[Path, int]]:
        for path in [*self._modules(), *self._inputs]:
            try:
                yield path, path.stat().st_mtime_ns
            except OSError:
                continue

    def _modules(self) -> Iterator[Path]:
        left = _MOST_FILES
        for at, folders, files in os.walk(self.folder):
            folders[:] = [f for f in folders if not f.startswith(".") and f not in _OTHERS]
            for name in files:
                if name.endswith(".py"):
                    left -= 1
                    if left < 0:
                        return
                    yield Path(at) / name


def load_again(reference: str) -> Network:
    """Return a network, with the modules in its folder as they are now.

    Raises:
        ErrataError: If it can't be loaded.
    """
    folder = folder_of(reference)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_ours = name.partition(".")[0] == "errata"
        if file is None or is_ours or name == "__main__" or set(_OTHERS) & {*Path(file).parts}:
            continue
        if folder in Path(file).resolve().parents:
            del sys.modules[name]
    return load(reference)
