"""A network for the image: a job on Spark with a Python function of its file's own."""

from collections import Counter
from pathlib import Path
from time import monotonic
from uuid import uuid4

import polars as pl

from errata.deploy.deployment import prepare
from errata.schemas import revisions as frames
from errata.settings.loading import load
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.containers.engine import LIMIT_S
from tests.spark_jobs.at_work import Fed

DAY_MS = 86_400_000

TAPE = """
from errata import Network, python, tumbling

def stretched(n):
    return SIZE * n + 1

SIZE = 3
net = Network("{name}")
trades = net.source(
    "trades", topic="{name}-trades", format="json", identity=["key"], event_time="at", keep="10y",
    partition_by=["key"],
    fields={{"key": "string", "at": "timestamp-millis", "product": "string", "n": "long"}},
)
trades.map("stretched", m=python(stretched, "long", "n")).aggregate(
    "bars", by=["product"], window=tumbling("1d"), place="spark", emit="on_update", keep="10y",
    m="sum(m)", trades="count(*)",
)
"""


class Tape:
    """A network's file, its topic, and what is sent to it."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, cluster: KafkaCluster) -> None:
        self.folder, name = folder, f"imaged-{uuid4().hex[:8]}"
        folder.chmod(0o755)
        path = folder / "tape.py"
        path.write_text(TAPE.format(name=name))
        create_topics(broker.settings, [TopicSpec(f"{name}-trades", 2)])
        place = Place(dict(broker.settings), folder / "state")
        self.plan = prepare(load(str(path)), place, cluster)
        self.fed = Fed(cluster, topic=f"{name}-trades", kinds=5)

    def play(self, *hours: int) -> None:
        """Send trades and corrections of some hours, and wait for what each makes."""
        for hour in hours:
            self.fed.send(100, hour)
            self._await_processed()

    def _await_processed(self) -> None:
        deadline = monotonic() + LIMIT_S
        while True:
            try:
                self.fed.processed(self.plan, self.plan.topology.scopes)
                return
            except AssertionError:  # its limit is for jobs that run already
                if monotonic() > deadline:
                    raise

    def bars(self) -> tuple[pl.DataFrame, dict[tuple[str, int], tuple[int, int]]]:
        """Return the revisions of the bars, and their content."""
        revisions = pl.concat(self.fed.believed(self.plan, "bars"))
        last = frames.last(revisions, self.plan.topology.arcs["bars"].identity)
        names = [f"after.{name}" for name in ("product", "window_start", "m", "trades")]
        rows = last.filter(pl.col("op") != frames.DELETE).select(names).rows()
        return revisions, {(product, start): (m, count) for product, start, m, count in rows}

    def expected(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the bars, by arithmetic alone, of what is live."""
        sums, counts = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for trade in self.fed.live.values():
            bar = trade["product"], trade["at"] // DAY_MS * DAY_MS
            sums[bar] += 3 * trade["n"] + 1
            counts[bar] += 1
        return {bar: (sums[bar], counts[bar]) for bar in counts}
