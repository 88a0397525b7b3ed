"""Runs a network without a broker, for tests: the same boxes, tasks and sweepers in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from errata.client import rows
from errata.client.json_lines import json_line
from errata.client.recorded import OverlayRegistry
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.declarations import BOUND, EARLIEST, Source
from errata.processors.declare.network import Network
from errata.processors.ingest.ingest_task import IngestTask
from errata.processors.ingest.owner_task import OwnerTask
from errata.processors.plan.deployed import declare_end, topic_specs
from errata.processors.plan.placement import Placement
from errata.processors.reports.progress_view import View
from errata.processors.tasks.on_error import DEAD_LETTER, ON_ERROR
from errata.processors.tasks.scope_task import ScopeTask
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.dead_letter import DeadLetter
from errata.processors.wire.dead_letter import decode as decode_dead_letter
from errata.schemas import framing
from errata.schemas.errors import ErrataError
from errata.sweepers.sweeper import LocalSweepers, Sweeper
from errata.topics import names
from errata.topics.cluster import Records, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import Registry, SchemaRegistry

Line = Mapping[str, Any] | str | bytes

LAG_MS = 2**60  # nothing is compacted here


class UnknownNameError(ErrataError):
    """The network has no source or arc of a name."""


class OnErrorError(ErrataError):
    """The choice for refused tuples is neither of the two.

    Args:
        choice: The choice.
    """

    def __init__(self, choice: str) -> None:
        super().__init__(f"on_error needs to be {' or '.join(ON_ERROR)}, found {choice!r}")


def _unbound(network: Network) -> Network:
    """Return a network whose bound sources are its own: they get native revisions."""
    declarations = dict(network.declarations)
    for name, box in declarations.items():
        if isinstance(box, Source) and box.envelope == BOUND:
            declarations[name] = replace(box, envelope="native")
    return replace(network, declarations=declarations)


class Driver:
    """Runs a network in memory, epoch by epoch.

    Args:
        network: The network to run; the arcs of other networks are sources like all others.
        mode: Overrides the mode of every aggregate.
        live: Sources get records as their topics have them (`send_raw`), in their own envelope and
            format, with the schemas of this registry. None: native revisions in JSON.
        on_error: What happens to a tuple for which a user's function raises: it is left out and
            becomes a `dead letter <Driver.dead_letters>` (``dead-letter``), or `close_epoch` raises
            `BoxError` (``stop``).

    Example:
        >>> from errata import Network, tumbling
        >>> net = Network("tape")
        >>> trades = net.source("trades", fields={"key": "string", "at": "timestamp-millis",
        ...     "price": "long"}, identity=["key"], event_time="at", keep="1d")
        >>> sums = trades.aggregate("sums", by=[], window=tumbling("1m"), total="sum(price)")
        >>> with Driver(net) as driver:
        ...     driver.send("trades", {"op": "insert", "after": {"key": "a", "at": 5, "price": 7}})
        ...     driver.end()
        ...     driver.table("sums")
        [{'window_start': 0, 'window_end': 60000, 'total': 7}]
    """

    def __init__(
        self,
        network: Network,
        mode: str | None = None,
        *,
        live: Registry | None = None,
        on_error: str = DEAD_LETTER,
    ) -> None:
        if on_error not in ON_ERROR:
            raise OnErrorError(on_error)
        self._on_error = on_error
        plan = compile_network(_unbound(network), mode=mode, every_arc=True, on_spark=False)
        sources = {
            name: replace(
                source,
                envelope="native" if live is None else source.envelope,
                format="json" if live is None else source.format,
                topic=f"source.{name}",
                partitions=1,
                start=EARLIEST,
            )
            for name, source in plan.topology.sources.items()
        }
        self._live = live
        topology = replace(plan.topology, sources=sources)
        self.plan = replace(plan, placement=Placement(topology)).alone()
        self.cluster = MemoryCluster(clock_ms=self._clock)
        self.epoch = 0
        self._folder = tempfile.TemporaryDirectory(prefix="errata-")
        self._read: dict[str, pl.DataFrame] = {}
        self._shown: dict[str, int] = {}
        self._build()

    def _build(self) -> None:
        cluster, plan = self.cluster, self.plan
        for spec in topic_specs(plan, compaction_lag_ms=LAG_MS):
            cluster.create(spec.name, spec.partitions)
        for source in plan.topology.sources.values():
            cluster.create(source.topic, 1)
        view = View(cluster, plan=plan)
        schemas: Registry = SchemaRegistry(cluster)
        if self._live is not None:
            schemas = OverlayRegistry(schemas, self._live)
        self.shared = shared = Shared(cluster, plan, schemas, view, LAG_MS, on_error=self._on_error)
        folder = Path(self._folder.name)
        self.sweepers = {
            arc: Sweeper(shared, arc, partition=0, folder=folder / arc, clock_ms=self._clock)
            for arc in plan.replayed_points()
        }
        self.ingests = {
            name: IngestTask(
                shared,
                replace(source, max_ahead_ms=None),  # there is no clock to be ahead of
                partition=0,
                folder=folder / f"index.{name}",
                clock_ms=self._clock,
                epoch_of=lambda: self.epoch,
                certain_ms=None,
            )
            for name, source in plan.topology.sources.items()
        }
        replays = LocalSweepers({arc: {0: sweeper} for arc, sweeper in self.sweepers.items()})
        self.tasks: list[Task] = [*self.ingests.values()]
        for scope in plan.topology.scopes.values():
            owned, place = plan.topology.owned(scope.name), folder / f"index.{scope.name}"
            self.tasks.append(
                ScopeTask(shared, scope, partition=0, replays=replays)
                if owned is None
                else OwnerTask(shared, owned, partition=0, folder=place)
            )
        self.attempts = [task.steps() for task in self.tasks]
        self.inputs = {
            arc: ArcInput(view, shared.codec(arc), 0, done=-1, resume=0)
            for arc in plan.topology.topics
        }
        for attempt, task in zip(self.attempts, self.tasks, strict=True):
            for _ in attempt:  # up to the first step of the loop
                if task.started:
                    break

    def _clock(self) -> int:
        return self.epoch * 50

    # ---------------------------------------------------------------- input

    def send(self, source: str, lines: Line | Iterable[Line]) -> None:
        """Send lines to a source: ``{"op", "before", "after"}``, or ``{"epoch": True}``.

        A line is a mapping of plain values (int, str, float, bool, `decimal.Decimal`, times in ms
        or `datetime`), or the JSON text of one. A single line or several may be sent.
        """
        for line in [lines] if isinstance(lines, (Mapping, str, bytes)) else lines:
            text = line.encode() if isinstance(line, str) else line
            if not isinstance(text, bytes):
                text = json_line(dict(text))
            if text.strip().startswith(b'{"epoch"') and rows.is_epoch_mark(text):
                self.close_epoch()
            else:
                self.send_raw(source, text)

    def send_raw(self, source: str, value: bytes | None, key: bytes | None = None) -> None:
        """Send the bytes of one record to a source; they need not be valid."""
        self.cluster.send(self._source(source).topic, partition=0, key=key, value=value)

    def close_epoch(self) -> int:
        """Process the lines sent so far as one epoch; return its number, which counts from 1."""
        self.epoch += 1
        self._run()
        return self.epoch

    def end(self) -> None:
        """Declare the end of all sources, in a separate epoch: every window closes."""
        self.epoch += 1
        for source in self.plan.topology.sources:
            declare_end(self.cluster, self.plan, source)
        self._run()

    def _source(self, name: str) -> Any:
        if name not in self.plan.topology.sources:
            known = ", ".join(self.plan.topology.sources)
            raise UnknownNameError(
                f"network {self.plan.network!r} has no source {name!r}: it has {known}"
            )
        return self.plan.topology.sources[name]

    def _run(self) -> None:
        """Advance all tasks and sweepers until none has anything to do."""
        quiet = 0
        while quiet < 2:
            busy = False
            for attempt in self.attempts:
                while next(attempt):
                    busy = True
            for sweeper in self.sweepers.values():
                busy |= sweeper.follow()
            quiet = 0 if busy else quiet + 1

    # ---------------------------------------------------------------- output

    def revisions(self, arc: str) -> list[dict[str, Any]]:
        """Return an arc's revisions since the last call, with their epochs, oldest first."""
        history = self._history(arc)
        new = history.filter(pl.col("epoch") > self._shown.get(arc, -1))
        if new.height:
            self._shown[arc] = int(new["epoch"].max())  # type: ignore[arg-type]
        return rows.revisions(self.plan.topology.arcs[arc], new)

    def table(self, arc: str) -> list[dict[str, Any]]:
        """Return an arc's current content, by identity."""
        kind = self.plan.topology.arcs[arc]
        return rows.tuples(kind, rows.fold(kind, self._history(arc)))

    def _history(self, arc: str) -> pl.DataFrame:
        if arc not in self.inputs:
            known = ", ".join(self.inputs)
            raise UnknownNameError(
                f"network {self.plan.network!r} has no arc {arc!r}: it has {known}"
            )
        source = self.inputs[arc]
        self.shared.view.poll()
        while source.poll():
            pass
        taken = source.take(source.frontier()).sort("epoch", "offset")
        source.drop(source.frontier())
        self._read[arc] = pl.concat([self._read.get(arc, taken.clear()), taken])
        return self._read[arc]

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first."""
        place = TopicPartition(names.dead_letters_topic(self.plan.network), 0)
        reader = self.cluster.reader({place: 0})
        batches: list[Records] = reader.poll()
        return [
            decode_dead_letter(value[framing.HEAD_BYTES :])
            for records in batches
            for value in records.values
            if value is not None
        ]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the running totals that each task has reported, by task."""
        return {task.name: dict(task.report.counts) for task in self.tasks}

    def close(self) -> None:
        """Release all resources; safe to call twice."""
        for attempt in self.attempts:
            attempt.close()
        for sweeper in self.sweepers.values():
            sweeper.close()
        self.cluster.close()
        self._folder.cleanup()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
