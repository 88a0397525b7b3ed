"""A job on Spark without Spark: the engine's guarantees in memory, step by step.

Bounds are logged before their batch runs. States of a batch are kept once the whole batch is done;
an incomplete batch is repeated with the logged bounds. A task of a batch may run twice.
"""

import pickle
import random
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from errata.processors.plan.topology import Scope
from errata.processors.reports.progress_view import View
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.tasks.shared import Shared
from errata.spark_jobs import blocks as batches
from errata.spark_jobs import job as slabs
from errata.spark_jobs import state_map
from errata.spark_jobs.blocks import DEAD_LETTERS, HEADER, TICK, Row, read, stretches
from errata.spark_jobs.driver import register
from errata.spark_jobs.epochs import Bound, Epochs
from errata.spark_jobs.executor import Recorder
from errata.spark_jobs.job import Job
from errata.spark_jobs.reports import BatchResult, Reports, merge_results, parse_resume
from errata.spark_jobs.share import Share, ShareResult
from errata.spark_jobs.stages import replay_requests, write
from errata.spark_jobs.state_map import Cache, Cached, Key

KEYS = (3, 7)
"""By writer, its key."""


@contextmanager
def few_of_each() -> Iterator[None]:
    """Slabs of few windows; blocks, deltas and parts of few rows."""
    with (
        mock.patch.object(batches, "PART_ROWS", 12),
        mock.patch.multiple(slabs, WINDOWS=2, EXTENTS=1),
        mock.patch.multiple(state_map, BLOCK_BYTES=6_000, FOLD_BYTES=5_000, MOST_DELTAS=3),
    ):
        yield


class Memory:
    """Blobs in a dictionary."""

    def __init__(self, blobs: dict[Key, bytes]) -> None:
        self.get, self._blobs = blobs.get, blobs

    def put(self, key: Key, blob: bytes) -> None:
        self._blobs[key] = blob

    def remove(self, key: Key) -> None:
        self._blobs.pop(key, None)


class Checkpoint:
    """The content on disk: the bounds, how many of them are committed, and the states then."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.bounds: list[dict[str, Any]] = []
        self.committed = 0
        self.states: dict[int, dict[Key, bytes]] = {}
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
        replays: Sends replay requests to sweepers.
        rng: The random generator for shuffles and for tasks that run twice.
    """

    def __init__(
        self,
        shared: Shared,
        scope: Scope,
        *,
        folder: Path,
        replays: TopicReplayClient,
        rng: random.Random,
    ) -> None:
        self.shared, self.replays, self.rng = shared, replays, rng
        self.cluster = shared.cluster
        recorder = Recorder(shared.registry)
        self.job = Job(shared.plan, scope, {}, recorder.ids, KEYS, on_error=shared.on_error)
        register(self.job, recorder)
        self.checkpoint = Checkpoint(folder / f"{scope.name}.checkpoint")
        self.reports = Reports(shared, self.job)
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
            epochs = Epochs(self.job, View(self.cluster, plan=self.job.plan))
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
            end = epochs.next(start, most=most)
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
        yield from self.reports.commit(told)
        kept.states, kept.committed = states, kept.committed + 1
        kept.save()
        yield True

    def _run(
        self, epochs: Epochs, start: Bound, end: Bound
    ) -> Generator[bool, None, tuple[BatchResult, dict[int, dict[Key, bytes]]]]:
        found = stretches(epochs, start, end)
        batch = found[0].batch
        rows: dict[int, list[Row]] = defaultdict(list)
        resume: dict[int, int] = {}
        letters = defaultdict[int, list[bytes]](list)
        for stretch in found:
            for row in read(self.job, stretch, self.cluster):
                if row is None:
                    if self.rng.random() < 0.3:  # few: a simulation ends when quiet
                        yield True
                elif row.kind == HEADER:
                    resume |= parse_resume(row.block.decode())
                elif row.kind == DEAD_LETTERS:
                    letters[KEYS.index(row.key)].append(row.block)
                else:
                    rows[row.key].append(row)
        states = {key: dict(blobs) for key, blobs in self.checkpoint.states.items()}
        told, made = (
            [BatchResult(batch, resume)],
            defaultdict[int, list[bytes]](list),
        )
        for key in self.rng.sample(list(rows), len(rows)):
            shuffled = self.rng.sample(rows[key], len(rows[key]))
            given = [row[1:] for row in shuffled if row.kind != TICK]
            blobs = Memory(states.setdefault(key, {}))
            cached = Cached(blobs, (self.job.name, key), self.cache)
            share = Share(self.job, cached)
            if batch.is_whole:
                results = list(share.rebuild(batch, given))
            else:
                blocks = [block for *_, block in sorted(given)]
                done = yield from self._asked(share.process(batch, blocks), batch)
                results = [] if done is None else [done]
            for done in results:
                told.append(BatchResult(batch, counts=done.counts))
                letters[KEYS.index(key)] += done.dead_letters
                made[KEYS.index(key)] += [done.block()] if done.revisions.height else []
        for number in self.rng.sample(range(len(KEYS)), len(KEYS)):
            for _ in range(self.rng.choice([1, 1, 1, 2])):
                content = made[number], letters[number]
                written = write(self.job, self.cluster, batch, *content, number=number)
                yield True
            told.append(BatchResult(batch, ends=written.ends, refused=written.refused))
        return merge_results(told), states

    def _asked(self, run: Any, batch: Any) -> Generator[bool, None, ShareResult | None]:
        try:
            need = next(run)
            while True:
                queries = replay_requests(self.job, need, batch)
                replayed = yield from self.replays.fetch(
                    queries, task=self.job.task(0), attempt=self.job.attempts[0], epoch=batch.epoch
                )
                path = self.job.plan.paths[self.job.name]
                need = run.send(path.inputs(replayed, wm=batch.wm))
        except StopIteration as stop:
            done: ShareResult | None = stop.value
            return done

    def close(self) -> None:
        self.reports.close()
