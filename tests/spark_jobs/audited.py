"""Networks on a broker that the audit is tried on."""

from typing import Any

import polars as pl

from errata.processors.arcs.arc_topic import Meta
from errata.run.worker import Worker
from errata.schemas import revisions as frames
from errata.topics.kafka import KafkaCluster
from tests.spark_jobs.at_work import Fed

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

JOINED = """
from errata import Network

net = Network("joined")
trades = net.source(
    "trades", topic="joined-trades", format="json", identity=["key"], event_time="at", keep="10y",
    partition_by=["key"], partitions=2,
    fields={"key": "string", "at": "timestamp-millis", "product": "string", "n": "long",
            "price": "decimal(9,2)", "rate": "double"},
)
large = trades.where("large", "n >= 15 and product < 'c'")
options = {"by": ["product"], "window": None, "emit": "on_update", "keep": "10y"}
sums = trades.aggregate("sums", n="sum(n)", **options)
most = large.aggregate("most", n="max(n)", **options)
net.join("met", {"s": sums, "m": most}, on=["product"], share="m.n / s.n", keep="10y")
sides = {"t": trades, "m": most}
net.join("each", sides, on=["product"], how="left", below="m.n - t.n", keep="10y")
"""


class Running(Fed):
    """A network on two ingest partitions and as many of each arc."""

    def __init__(self, cluster: KafkaCluster, worker: Worker) -> None:
        super().__init__(cluster, topic=worker.plan.topology.sources["trades"].topic, kinds=5)
        self.worker = worker

    def drawn(self) -> dict[str, Any]:
        chance = self.chance
        return super().drawn() | {
            "price": chance.randrange(10**6) / 100,
            "rate": chance.random() * 1e6,
        }

    def settle(self) -> int:
        """Wait until all that was sent is processed; return the last epoch."""
        return self.processed(self.worker.plan, self.worker.plan.topology.scopes)

    def write(self, arc: str, partition: int, revision: pl.DataFrame) -> None:
        """Write a revision by hand, in the name of the task and epoch that it has."""
        codec, meta = self.worker.shared.codec(arc), revision.row(0, named=True)
        plain = revision.select(list(frames.schema(codec.arc.fields)))
        keys, values = codec.encode(plain, Meta(meta["task"], meta["attempt"], meta["epoch"]))
        self.cluster.send(codec.topic, partition=partition, key=keys[0], value=values[0])
        self.cluster.flush()
