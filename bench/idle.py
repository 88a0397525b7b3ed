"""Measures what an idle network costs: ``python -m bench.idle``.

`errata up` runs three sources, two lookups and two aggregates on an embedded broker. A few hundred
tuples are sent; then nothing arrives any more, and the processor time of each process is read from
/proc. Prints a table by process, in percent of a core.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench.processes import (
    IN_ORDER,
    Settings,
    broker_pid,
    children,
    command_of,
    errata_up,
    processor_s,
)
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec

NETWORK = """
from errata import Network, tumbling

net = Network("idle")
common = dict(format="json", keep="30d", event_time="at")
trades = net.source(
    "trades", topic="idle-trades", identity=["key"],
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
    **common,
)
names, places = (
    net.source(
        name, topic=f"idle-{name}", identity=["symbol"],
        fields={"symbol": "string", "at": "timestamp-millis", "label": "string"}, **common,
    )
    for name in ("names", "places")
)
named = trades.lookup("named", names, on=["symbol"], scope="named", called="names.label",
                      keep="30d")
placed = named.lookup("placed", places, on=["symbol"], scope="placed", place="places.label",
                      keep="30d")
totals = trades.aggregate("totals", by=["key"], window=tumbling("10m"), mode="upstream",
                          scope="totals", total="sum(price)", keep="30d")
placed.aggregate("by_place", by=["place"], window=tumbling("10m"), mode="downstream",
                 scope="by_place", total="sum(price)", keep="30d")
totals.sink("idle-totals", envelope="upsert", format="json")
placed.sink("idle-placed", envelope="upsert", format="json")
"""
SOURCES = ("trades", "names", "places")
SINKS = {"idle-totals": "total", "idle-placed": "price"}
SYMBOLS, TUPLES, HOUR_MS, MARK = 10, 400, 3_600_000, 1_000_000
LIMIT_S = 120.0


class Feed:
    """Sends tuples and corrections, and reads the sinks.

    Args:
        kafka: Settings of the broker.
    """

    def __init__(self, kafka: Settings) -> None:
        self.producer = Producer({**kafka, **IN_ORDER, "linger.ms": 0})
        self.consumer = Consumer(
            {**kafka, "group.id": "bench", "auto.offset.reset": "earliest"}
            | {"isolation.level": "read_committed", "topic.metadata.refresh.interval.ms": 500}
        )
        self.base_ms = time.time_ns() // 1_000_000 - 3 * HOUR_MS
        self.seen: dict[str, set[int]] = {topic: set() for topic in SINKS}

    def trade(self, number: int, price: int) -> dict[str, object]:
        """Return one trade; all lie in half an hour."""
        at = self.base_ms + number * 1_800_000 // TUPLES
        return {"key": f"k{number}", "at": at, "symbol": f"s{number % SYMBOLS}", "price": price}

    def send(self, source: str, op: str, after: dict[str, object]) -> None:
        """Append one revision."""
        value = json.dumps({"op": op, "after": after}).encode()
        self.producer.produce(f"idle-{source}", value)
        self.producer.poll(0)

    def start(self) -> None:
        """Send all tuples, then later ones that close their windows; wait until results are in."""
        for symbol in range(SYMBOLS):
            for source in SOURCES[1:]:
                label = {"symbol": f"s{symbol}", "at": self.base_ms, "label": f"{source} {symbol}"}
                self.send(source, "insert", label)
        for number in range(TUPLES):
            self.send("trades", "insert", self.trade(number, number))
        later = self.trade(TUPLES, 0) | {"at": self.base_ms + 2 * HOUR_MS}
        self.send("trades", "insert", later)
        for source in SOURCES[1:]:
            after = {"symbol": "later", "at": self.base_ms + 2 * HOUR_MS, "label": ""}
            self.send(source, "insert", after)
        self.producer.flush()
        self.consumer.assign([Assigned(topic, 0, 0) for topic in SINKS])
        deadline = time.monotonic() + LIMIT_S
        while any(len(seen) < TUPLES for seen in self.seen.values()):
            self.read(0.1)
            if time.monotonic() > deadline:
                found = {topic: len(seen) for topic, seen in self.seen.items()}
                raise TimeoutError(f"the results of {TUPLES} tuples are not in the sinks: {found}")

    def read(self, for_s: float) -> None:
        """Note which results arrive."""
        until_s = time.monotonic() + for_s
        while (left_s := until_s - time.monotonic()) > 0:
            message = self.consumer.poll(left_s)
            if message is None or message.error() or message.value() is None:
                continue
            topic = message.topic() or ""
            number = int(json.loads(message.value() or b"")[SINKS[topic]])
            self.seen[topic].add(number)


def role_of(command: Sequence[str]) -> str:
    """Return what a process of `errata up` does."""
    if "--scope" in command:
        return command[command.index("--scope") + 1]
    return "sweepers" if "sweep" in command else "up"


def used(pids: dict[str, int]) -> dict[str, float]:
    """Return the processor time of processes so far."""
    return {role: processor_s(pid) for role, pid in pids.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of standing idle")
    parser.add_argument("--settle", type=float, default=10, help="seconds after the last tuple")
    parser.add_argument("--apart", action="store_true", help="a process for each scope")
    options = parser.parse_args()
    console, apart = Console(width=100), ["--apart"] * options.apart
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="errata-bench-") as name:
        create_topics(broker.settings, [TopicSpec(f"idle-{source}", 1) for source in SOURCES])
        with errata_up(NETWORK, broker.settings, Path(name), *apart) as up:
            feed = Feed(broker.settings)
            feed.start()
            feed.consumer.close()
            pids = {role_of(command_of(pid)): pid for pid in (up.pid, *children(up.pid))}
            pids["broker"] = broker_pid()
            time.sleep(options.settle)
            before, began_s = used(pids), time.monotonic()
            time.sleep(options.seconds)
            wall_s = time.monotonic() - began_s
            taken = {role: 100 * (now - before[role]) / wall_s for role, now in used(pids).items()}
    table = Table("process", "% of a core", box=MARKDOWN)
    ours = [share for role, share in taken.items() if role != "broker"]
    rows = taken | {f"all {len(ours)} but the broker": sum(ours)}
    for role, share in rows.items():
        table.add_row(role, f"{share:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
