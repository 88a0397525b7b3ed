"""A job on Spark without Spark: the engine's guarantees in memory, step by step.

Bounds are logged before their batch runs. States of a batch are kept once the whole batch is done;
an incomplete batch is repeated with the logged bounds. A task of a batch may run twice.
"""

import json
import pickle
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from errata.processors.plan.topology import Scope
from errata.processors.reports.progress_view import View
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.tasks.shared import Shared
from errata.spark_jobs import blocks, slabs, state_map
from errata.spark_jobs.blocks import stretches
from errata.spark_jobs.driver import register
from errata.spark_jobs.epochs import Batch, Bound, Epochs, OutdatedStatesError
from errata.spark_jobs.executor import Recorder
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.spark_jobs.reports import BatchResult, Reports, merge_results, parse_read
from errata.spark_jobs.routing import (
    COUNTS,
    DEAD_LETTERS,
    HEADER,
    REFUSED,
    RESULTS,
    REVISIONS,
    TUPLES,
    Row,
    StepResult,
    result_rows,
)
from errata.spark_jobs.source_epochs import epochs_of
from errata.spark_jobs.stages import replay_requests, run_of, write
from errata.spark_jobs.state_map import Cache, Cached, Key

WRITERS = 2


@contextmanager
def few_of_each() -> Iterator[None]:
    """Slabs of few windows; blocks, deltas and parts of few rows."""
    with (
        mock.patch.object(blocks, "PART_ROWS", 12),
        mock.patch.multiple(slabs, WINDOWS=2, EXTENTS=1),
        mock.patch.multiple(state_map, BLOCK_BYTES=6_000, FOLD_BYTES=5_000, MOST_DELTAS=3),
    ):
        yield


States = dict[tuple[str, Key], bytes]
"""The states of a key: by name of a map, and the key in it."""


class Memory:
    """Blobs in a dictionary."""

    def __init__(self, blobs: States, name: str) -> None:
        self._blobs, self._name = blobs, name

    def get(self, key: Key) -> bytes | None:
        return self._blobs.get((self._name, key))

    def put(self, key: Key, blob: bytes) -> None:
        self._blobs[self._name, key] = blob

    def remove(self, key: Key) -> None:
        self._blobs.pop((self._name, key), None)


class Checkpoint:
    """The content on disk: the bounds, how many of them are committed, and the states then."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.bounds: list[dict[str, Any]] = []
        self.committed = 0
        self.states: dict[int, States] = {}
        if file.exists():
            self.bounds, self.committed, self.states = pickle.loads(file.read_bytes())

    def save(self) -> None:
        self.file.write_bytes(pickle.dumps((self.bounds, self.committed, self.states)))

    def bound(self, number: int) -> Bound:
        return Bound.of(self.bounds[number]) if number >= 0 else Bound()


class SparkJob:
    """A driver and its executors.

    Args:
        shared: What the process shares.
        scope: The job's scope.
        folder: The folder of its checkpoint.
        replays: Sends replay requests to sweepers; None: the job ingests a source.
        rng: The random generator for shuffles and for tasks that run twice.
        clock_ms: The wall clock.
    """

    def __init__(
        self,
        shared: Shared,
        scope: Scope,
        *,
        folder: Path,
        replays: TopicReplayClient | None,
        rng: random.Random,
        clock_ms: Callable[[], int],
    ) -> None:
        self.shared, self.replays, self.rng = shared, replays, rng
        self.clock_ms = clock_ms
        self.cluster = shared.cluster
        recorder = Recorder(shared.registry)
        job = Job(shared.plan, scope, {}, recorder.ids, WRITERS, on_error=shared.on_error)
        self.job = replace(job, keys=tuple(range(3, 3 + job.slots)))
        register(self.job, recorder)
        self.checkpoint = Checkpoint(folder / f"{scope.name}.checkpoint")
        self.reports = Reports(shared, self.job, clock_ms=clock_ms)
        self.cache = Cache(1 << 20)

    @property
    def started(self) -> bool:
        """Whether all tasks have started, so that reports cover what dead attempts wrote."""
        return self.reports.tasks != [] and all(t.started for t in self.reports.tasks)

    @property
    def name(self) -> str:
        """One of its transactional ids, without the network's name."""
        one = self.rng.choice([self.job.transactional_id, self.job.writer_id(0)])
        return one.removeprefix(f"{self.job.plan.network}.")

    @property
    def attempt(self) -> Reports:
        """What holds the transactions of this attempt."""
        return self.reports

    def steps(self) -> Generator[bool, None, None]:
        try:
            yield from self.reports.begin()
            self.job = self.reports.job
            epochs = epochs_of(self.job, View(self.cluster, plan=self.job.plan), self.clock_ms)
            end = self.cluster.end(epochs.view.source)
            while not epochs.view.has_read_to(end):
                epochs.view.poll()
                yield False
            while True:
                yield from self._batch(epochs)
        finally:
            self.close()

    def _batch(self, epochs: Epochs) -> Iterator[bool]:
        kept = self.checkpoint
        epochs.view.poll()
        start = kept.bound(kept.committed - 1)
        if len(kept.bounds) == kept.committed:
            most = self.rng.choice([None, None, 1, 5, 20])
            try:
                end = epochs.next(start, most=most)
            except OutdatedStatesError:  # the driver makes them anew
                kept.bounds, kept.committed, kept.states = [], 0, {}
                self.reports.close()
                yield from self.reports.begin()
                self.job = epochs.job = self.reports.job
                return
            if end == start:
                yield False
                return
            kept.bounds.append(end.plain())
            kept.save()
            yield True
        end = kept.bound(kept.committed)
        while epochs.reported < start.epoch:
            epochs.view.poll()
            yield False
        told, states = yield from self._run(epochs, start, end)
        self.shared.view.poll()
        yield from self.reports.commit(told)
        kept.states, kept.committed = states, kept.committed + 1
        kept.save()
        yield True

    def _run(
        self, epochs: Epochs, start: Bound, end: Bound
    ) -> Generator[bool, None, tuple[BatchResult, dict[int, States]]]:
        found = stretches(epochs, start, end)
        batch = found[0].batch
        rows: dict[int, list[Row]] = defaultdict(list)
        read: tuple[dict[Place, int], dict[Place, int]] = {}, {}
        told, made = list[BatchResult](), defaultdict[int, list[Row]](list)
        letters, refused = defaultdict[int, list[bytes]](list), defaultdict[int, list[bytes]](list)

        def deal(row: Row) -> None:
            """Give a row to the part of a step that it is for, or to a writer."""
            writer = row.key % WRITERS
            if row.kind == HEADER:
                for known, found in zip(read, parse_read(row.block.decode()), strict=True):
                    known.update(found)
            elif row.kind == DEAD_LETTERS:
                letters[writer].append(row.block)
            elif row.kind == REFUSED:
                refused[writer].append(row.block)
            elif row.kind == COUNTS:
                told.append(BatchResult(batch, counts=json.loads(row.block)))
            elif row.kind == REVISIONS:
                made[writer].append(row)
            else:
                rows[row.key].append(row)

        for stretch in found:
            for row in blocks.read(self.job, stretch, self.cluster):
                if row is not None:
                    deal(row)
                elif self.rng.random() < 0.3:  # few: a simulation ends when quiet
                    yield True
        states = {key: dict(blobs) for key, blobs in self.checkpoint.states.items()}
        for level in range(1, self.job.levels + 1):
            keys = [key for key in rows if self.job.by_key[key][0].level == level]
            for key in self.rng.sample(keys, len(keys)):
                results = yield from self._part(batch, key, rows[key], states.setdefault(key, {}))
                step, slot = self.job.by_key[key]
                for row in result_rows(self.job, batch, step, slot, results):
                    deal(row)
        for number in self.rng.sample(range(WRITERS), WRITERS):
            for _ in range(self.rng.choice([1, 1, 1, 2])):
                content = made[number], letters[number], refused[number]
                written = write(self.job, self.cluster, batch, *content, number=number)
                yield True
            told.append(BatchResult(batch, ends=written.ends, refused=written.refused))
        return merge_results([BatchResult(batch, *read), *told]), states

    def _part(
        self, batch: Batch, key: int, rows: list[Row], states: States
    ) -> Generator[bool, None, Iterable[StepResult]]:
        """Run a part of a step; sweepers answer what its states don't hold."""
        job, (step, _) = self.job, self.job.by_key[key]
        shuffled = [r for r in self.rng.sample(rows, len(rows)) if r.kind in (TUPLES, RESULTS)]

        def maps(name: str) -> Cached:
            return Cached(Memory(states, name), (job.name, key, name), self.cache)

        run = run_of(job, batch, key, shuffled, maps)
        try:
            need = next(run)
            while True:
                box = step.boxes[-1].arc.name
                assert self.replays is not None
                queries = replay_requests(job, need, batch, box=box)
                replayed = yield from self.replays.fetch(
                    queries, task=job.task(0), attempt=job.attempts[0], epoch=batch.epoch
                )
                need = run.send(job.plan.paths[box].inputs(replayed, wm=batch.wm))
        except StopIteration as stop:
            done: Iterable[StepResult] = stop.value
            return done

    def close(self) -> None:
        self.reports.close()
