"""A network of two modes that runs on a broker, for tests that move it or give it up."""

import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

from confluent_kafka import Producer

from errata.client import rows
from errata.deploy.deployment import prepare
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.settings.loading import load
from errata.settings.place import Place
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry

LIMIT_S = 90.0
MINUTE = 60_000
NETWORK = """
from errata import Network, hopping

net = Network("NAME")
prices = net.source(
    "prices", topic="NAME-prices", format="json", keep="1d", identity=["key"], event_time="at",
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
    partitions=PARTITIONS,
)
options = dict(by=["symbol"], window=hopping("30m", every="20m"), keep="1d")
prices.aggregate("up", mode="upstream", total="sum(price)", top="max(price)", **options)
prices.aggregate("down", mode="downstream", scope="down", total="sum(price)", top="max(price)",
                 **options)
"""


class Running:
    """A network file, and `errata up` on it."""

    def __init__(self, folder: Path, environ: dict[str, str], broker: EmbeddedBroker) -> None:
        self.name = f"moved_{uuid4().hex[:8]}"
        self.folder, self.environ, self.broker = folder, environ, broker
        self.log, self.processes = folder / "up.log", []
        self.producer = Producer({**broker.settings, "enable.idempotence": True})
        self.rng, self.alive, self.base_ms = random.Random(5), dict[str, dict](), 0

    def declare(self, partitions: int) -> None:
        text = NETWORK.replace("PARTITIONS", str(partitions)).replace("NAME", self.name)
        (self.folder / "moved.py").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `errata up`, or another command of its."""
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "errata", *(arguments or ("up", "moved.py"))]
            up = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=self.environ,
            )  # fmt: skip
        self.processes.append(up)
        return up

    def errata(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "errata", *arguments],
            capture_output=True, text=True, cwd=self.folder, env=self.environ, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip

    def send(self, count: int) -> None:
        """New prices, and corrections of any that came before."""
        for _ in range(count):
            rng, old = self.rng, None
            if self.alive and rng.random() < 0.3:
                old = self.alive.pop(rng.choice(list(self.alive)))
            key = f"k{rng.randrange(10**9)}" if old is None else old["key"]
            new = {
                "key": key,
                "at": self.base_ms + rng.randrange(600) * MINUTE,
                "symbol": rng.choice("abcdefgh"),
                "price": rng.randrange(100),
            }
            line: dict = {"op": "insert", "after": new}
            if old is not None:
                line = {"op": "replace", "before": old, "after": new}
                if rng.random() < 0.4:
                    line, new = {"op": "delete", "before": old}, None
            if new is not None:
                self.alive[key] = new
            place = int(key[1:]) % 2
            self.producer.produce(f"{self.name}-prices", json.dumps(line).encode(), partition=place)
        assert self.producer.flush(30) == 0

    def at_work(self) -> bool:
        """Whether the processes of this version have taken in what there was."""
        told = self.errata("status", "moved.py", "--json")
        if told.returncode:  # not deployed yet
            return False
        tasks = json.loads(told.stdout)["tasks"]
        return not any(task["waiting"] or task["held_by"] for task in tasks)

    def wanted(self) -> set[tuple]:
        """A recomputation of the totals."""
        groups = defaultdict(list)
        for row in self.alive.values():
            first = (row["at"] - 30 * MINUTE) // (20 * MINUTE) + 1
            for number in range(first, row["at"] // (20 * MINUTE) + 1):
                groups[row["symbol"], number * 20 * MINUTE].append(row["price"])
        return {(*group, sum(prices), max(prices)) for group, prices in groups.items()}

    def found(self, arc: str) -> set[tuple]:
        """What an arc folds to, all partitions, as of now."""
        cluster = KafkaCluster(self.broker.settings)
        try:
            place = Place(self.broker.settings, self.folder)
            plan = prepare(load(str(self.folder / "moved.py")), place, cluster)
            view = View(cluster, plan=plan)
            while not view.has_read_to(cluster.end(view.source)):
                view.poll()
            shared, there = Shared(cluster, plan, SchemaRegistry(cluster), view, 0), set()
            for partition in range(plan.placement.partitions[arc]):
                source = ArcInput(view, shared.codec(arc), partition, done=-1, resume=0)
                while source.cursor.position < cluster.end(source.place):
                    source.poll()
                table = rows.fold(plan.topology.arcs[arc], source.take(2**62))
                source.close()
                there |= set(table.select("symbol", "window_start", "total", "top").iter_rows())
            return there
        finally:
            cluster.close()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = monotonic() + LIMIT_S
        while not condition():
            assert monotonic() < deadline, f"{what}\n{self.log.read_text()}"
            sleep(0.2)
