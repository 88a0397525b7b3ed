"""A network at work on a broker: random trades for it, and what it makes of them."""

import json
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec, history
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.run.worker import Worker
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from tests.steps import ended

HOUR = 3_600_000
LIMIT_S = 60.0


class Fed:
    """A network whose source `trades` is fed with trades, corrections and cancellations.

    Args:
        cluster: The cluster.
        topic: The source's, in two partitions.
        kinds: Of so many lines one cancels what is there, and one corrects it.
    """

    def __init__(self, cluster: KafkaCluster, *, topic: str, kinds: int) -> None:
        self.cluster, self.topic, self.kinds = cluster, topic, kinds
        self.chance = random.Random(7)
        self.live: dict[str, dict[str, Any]] = {}
        self.sent = 0

    def send(self, count: int, hour: int) -> None:
        """Send trades of some hours, and corrections and cancellations of any."""
        for number in range(count):
            line = self._line(f"{self.sent}", hour, number % self.kinds)
            key = (line.get("after") or line["before"])["key"]
            value = json.dumps(line).encode()
            self.cluster.send(self.topic, partition=int(key) % 2, key=None, value=value)
            self.sent += 1
        self.cluster.flush()

    def drawn(self) -> dict[str, Any]:
        """Return the fields that a correction changes."""
        return {"product": self.chance.choice("abcd"), "n": self.chance.randrange(20)}

    def processed(self, plan: CompiledPlan, scopes: Iterable[str]) -> int:
        """Wait until some scopes have processed all that was sent; return the last epoch."""
        view, deadline = View(self.cluster, plan=plan), time.monotonic() + LIMIT_S
        ingests = view.tasks("ingest.trades")
        tasks = [*ingests, *(task for scope in scopes for task in view.tasks(scope))]
        while time.monotonic() < deadline:
            view.poll()
            newest = max(view.of(task).done for task in ingests)
            taken = sum(view.of(task).counts.get("read", 0) for task in ingests)
            if taken == self.sent and min(map(view.frontier, tasks)) >= newest:
                view.close()
                return newest
            time.sleep(0.01)
        raise AssertionError({task: view.of(task) for task in tasks})

    def believed(self, plan: CompiledPlan, arc: str) -> list[pl.DataFrame]:
        """Return an arc's revisions as a reader believes them, a frame a partition."""
        codec = ArcCodec(
            plan.topology.arcs[arc], plan.deployment.topic(arc), SchemaRegistry(self.cluster)
        )
        view = View(self.cluster, plan=plan)
        view.catch_up()
        places = [TopicPartition(codec.topic, p) for p in range(plan.placement.partitions[arc])]
        found = [view.covered(ended(history(self.cluster, codec, at, 0))) for at in places]
        view.close()
        return found

    def _line(self, key: str, hour: int, kind: int) -> dict[str, Any]:
        chance = self.chance
        if self.live and kind == 0:
            return {"op": "delete", "before": self.live.pop(chance.choice(list(self.live)))}
        before = self.live[chance.choice(list(self.live))] if self.live and kind == 1 else None
        after = before or {"key": key, "at": hour * HOUR + chance.randrange(4 * HOUR)}
        after = after | self.drawn()
        self.live[after["key"]] = after
        told = {"op": "replace", "before": before} if before else {"op": "insert"}
        return told | {"after": after}


@contextmanager
def at_work(worker: Worker, *ends: type[Exception]) -> Iterator[Worker]:
    """Let a worker run in a thread, which some errors may end before the context does."""
    stop = Event()

    def run() -> None:
        with suppress(*ends):
            worker.run(stop.is_set)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        stop.set()
        thread.join()
