"""A network on a broker that the audit is tried on."""

import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from errata.worker import Worker
from processors.arc_topic import Meta, history
from processors.view import View
from schemas import revisions as frames
from spark_jobs.as_of import Reports
from topics.cluster import TopicPartition
from topics.kafka import KafkaCluster

HOUR = 3_600_000
LIMIT_S = 60.0

TAPE = """
from errata import Network, hopping, tumbling

net = Network("audited")
trades = net.source(
    "trades", topic="audited-trades", format="json", identity=["key"], event_time="at", keep="10y",
    partition_by=["key"], lateness="1m", partitions=2,
    fields={"key": "string", "at": "timestamp-millis", "product": "string", "n": "long",
            "price": "decimal(9,2)", "rate": "double"},
)
scaled = trades.where("real", "n <> 7").map("scaled", paid="price * n")
large, small = scaled.route(large="n >= 10", small="rest")
both = net.union("both", large, small)
sums = both.aggregate(
    "sums", by=["product"], window=hopping("30m", every="20m"), keep="10y",
    paid="sum(paid)", rate="avg(rate)", most="max(n)",
)
loose = both.aggregate("loose", by=["product"], window=tumbling("1h"), n="count(*)")
days = loose.aggregate("days", by=[], window=tumbling("1d"), n="sum(n)", groups="count(*)")
"""


@dataclass
class Running:
    """The network on two ingest partitions and as many of each arc."""

    cluster: KafkaCluster
    worker: Worker
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent: int = 0

    def send(self, count: int, hour: int) -> None:
        """Send trades, and corrections and cancellations of what is there."""
        for number in range(count):
            line = self.line(f"{self.sent}", hour, number % 5)
            key = (line.get("after") or line["before"])["key"]
            value = json.dumps(line).encode()
            self.cluster.send("audited-trades", partition=int(key) % 2, key=None, value=value)
            self.sent += 1
        self.cluster.flush()

    def line(self, key: str, hour: int, kind: int) -> dict[str, Any]:
        chance = self.chance
        if self.live and kind == 0:
            return {"op": "delete", "before": self.live.pop(chance.choice(list(self.live)))}
        before = self.live[chance.choice(list(self.live))] if self.live and kind == 1 else None
        after = before or {"key": key, "at": hour * HOUR + chance.randrange(4 * HOUR)}
        after = after | {
            "product": chance.choice("abcd"),
            "n": chance.randrange(20),
            "price": chance.randrange(10**6) / 100,
            "rate": chance.random() * 1e6,
        }
        self.live[after["key"]] = after
        told = {"op": "replace", "before": before} if before else {"op": "insert"}
        return told | {"after": after}

    def settle(self) -> int:
        """Wait until all that was sent is processed; return the last epoch."""
        plan = self.worker.plan
        view, deadline = View(self.cluster, plan=plan), time.monotonic() + LIMIT_S
        ingests = view.tasks("ingest.trades")
        while time.monotonic() < deadline:
            view.poll()
            newest = max(view.of(task).done for task in ingests)
            taken = sum(view.of(task).counts.get("read", 0) for task in ingests)
            tasks = [task for scope in plan.scopes for task in view.tasks(scope)]
            if taken == self.sent and min(map(view.frontier, [*ingests, *tasks])) >= newest:
                view.reader.close()
                return newest
            time.sleep(0.01)
        raise AssertionError({task: view.of(task) for task in ingests})

    def believed(self, arc: str, partition: int) -> pl.DataFrame:
        codec = self.worker.shared.codec(arc)
        view = Reports(self.cluster, plan=self.worker.plan)
        view.catch_up()
        reading = history(self.cluster, codec, TopicPartition(codec.topic, partition), 0)
        try:
            while True:
                next(reading)
        except StopIteration as stop:
            return view.believed(stop.value)

    def write(self, arc: str, partition: int, revision: pl.DataFrame) -> None:
        """Write a revision by hand, in the name of the task and epoch that it has."""
        codec, meta = self.worker.shared.codec(arc), revision.row(0, named=True)
        plain = revision.select(list(frames.schema(codec.arc.fields)))
        keys, values = codec.encode(plain, Meta(meta["task"], meta["attempt"], meta["epoch"]))
        self.cluster.send(codec.topic, partition=partition, key=keys[0], value=values[0])
        self.cluster.flush()
