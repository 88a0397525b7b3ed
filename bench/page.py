"""What the page costs: a network of many tasks, all of which report, and many corrections.

Every task and every record is played by hand on a cluster in memory: the page alone is timed.
`--serve` serves it, too, to look at it in a browser.
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from dataclasses import replace

import numpy as np
import polars as pl
import uvicorn

from errata import Network
from errata.deploy.deployment import DeployedNetwork
from errata.page import PORT
from errata.page.desk import Desk
from errata.page.live import TICK_S, Live
from errata.page.server import Page
from errata.processors.arcs.arc_topic import ArcCodec, Meta
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import deploy, topic_specs
from errata.processors.tasks import subjects
from errata.processors.wire import report as reports
from errata.processors.wire.report import INTERVAL_MS, Report
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.topics import names
from errata.topics.memory import MemoryCluster
from errata.topics.registry_server import registry

NET = "wide"
FIELDS = {"key": "string", "at": "timestamp-millis", "n": "long"}


def network(boxes: int) -> Network:
    """A source, and filters in scopes of their own."""
    net = Network(NET)
    source = net.source(
        "all", topic="feed", format="json", fields=FIELDS, identity=["key"], event_time="at",
        keep="1d",
    )  # fmt: skip
    for number in range(boxes):
        source.where(f"box_{number}", f"n > {number}", keep="1d", scope=f"s{number}")
    return net


class Tasks:
    """All tasks of a network, which report at each turn."""

    def __init__(self, boxes: int) -> None:
        self.cluster = MemoryCluster()
        self.plan = plan = compile_network(network(boxes)).placed({"all": 1})
        self.cluster.create("feed", 1)
        for spec in topic_specs(plan, compaction_lag_ms=86_400_000):
            self.cluster.create(spec.name, spec.partitions)
        self.registry = registry(self.cluster)
        subjects.register(plan, self.registry)
        deploy(self.cluster, plan)
        scopes, topic = plan.topology.all_scopes, names.progress_topic(NET)
        self.reports = {t: Report(t, attempt=1) for s in scopes for t in plan.placement.tasks(s)}
        self.head = framing.head(self.registry.register(f"{topic}-value", reports.SCHEMA))
        self.hand, self.rng = self.cluster.transactions(f"{NET}.hand"), np.random.default_rng(1)
        self.codecs = {
            arc: ArcCodec(plan.topology.arcs[arc], plan.deployment.topic(arc), self.registry)
            for arc in plan.boxes
        }
        self.writer = {
            plan.deployment.topic(a): plan.placement.writers(a, 0)[0] for a in plan.boxes
        }

    def turn(self, corrections: int) -> None:
        """Let every task finish an epoch, and some arcs be corrected in it."""
        epoch = time.time_ns() // 1_000_000 // INTERVAL_MS
        arcs = list(self.codecs)
        self.hand.begin()
        for number in self.rng.choice(len(arcs), min(corrections, len(arcs)), replace=False):
            codec = self.codecs[arcs[number]]
            keys, values = codec.encode(
                self._correction(codec), Meta(self.writer[codec.topic], 1, epoch)
            )
            self.hand.produce(codec.topic, partitions=[0], keys=keys, values=values)
        written = {
            self.writer[place.topic]: {place: (own.stop, epoch)}
            for place, own in self.hand.flush().items()
        }
        for task, known in self.reports.items():
            self.reports[task] = replace(
                known,
                done=epoch,
                plan=self.plan.fingerprint,
                committed={1: epoch},
                ends={**known.ends, **written.get(task, {})},
                counts={"read": known.counts.get("read", 0) + 100},
            )
        self.hand.produce(
            names.progress_topic(NET),
            partitions=[0] * len(self.reports),
            keys=[task.encode() for task in self.reports],
            values=[self.head + reports.encode(report) for report in self.reports.values()],
        )
        self.hand.commit()

    def _correction(self, codec: ArcCodec) -> pl.DataFrame:
        before = {"key": "a", "at": 5, "n": int(self.rng.integers(9))}
        columns: dict[str, list[object]] = {"op": [frames.REPLACE]}
        columns |= {f"{frames.BEFORE}{name}": [value] for name, value in before.items()}
        columns |= {f"{frames.AFTER}{name}": [v] for name, v in (before | {"n": 99}).items()}
        kinds = frames.schema(codec.arc.fields)
        return pl.DataFrame(columns, schema={name: kinds[name] for name in columns})


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(live: Live, deployment: DeployedNetwork) -> None:
    """Serve the page in a thread."""
    page = Page(live, tables=Desk(deployment), reasons=Desk(deployment), allow_writes=False)
    app = page.app(hosts={"127.0.0.1"}, token="")
    config = uvicorn.Config(app, port=PORT, log_config=None, lifespan="off")
    threading.Thread(target=uvicorn.Server(config).run, daemon=True).start()
    print(f"http://127.0.0.1:{PORT}/", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=1_000)
    parser.add_argument("--corrections", type=int, default=167, help="in a second")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help="in real time, for a browser")
    given = parser.parse_args()
    tasks, before_mb = Tasks(given.boxes), megabytes()
    deployment = DeployedNetwork(tasks.cluster, tasks.plan, tasks.registry, {})
    began = time.process_time()
    live = Live(deployment, since_ms=time.time_ns() // 1_000_000)
    print(f"{len(tasks.reports)} tasks, {len(tasks.codecs)} arcs of boxes")
    print(f"start: {time.process_time() - began:.2f} CPU-s")
    if given.serve:
        serve(live, deployment)
    last, spent, sizes = None, 0.0, list[int]()
    for turn in range(2 * given.seconds):
        if turn % 2 == 0:
            tasks.turn(given.corrections)
        began = time.thread_time()
        live.look(wait_s=0.0)
        live.tell()
        spent += time.thread_time() - began
        last, texts = live.messages(last)
        sizes += map(len, texts)
        if given.serve:
            time.sleep(TICK_S)
    seen = live.messages(None)[1][0].count(b'"epoch"')
    later = sum(sizes[1:]) / len(sizes[1:])
    print(f"{spent / given.seconds:.2f} CPU-s for a second of the network")
    print(f"messages: the first has {sizes[0] / 1e3:.0f} kB, later ones {later / 1e3:.0f} kB")
    print(f"{seen} corrections are kept; {megabytes() - before_mb:.0f} MB more than without it")


if __name__ == "__main__":
    main()
