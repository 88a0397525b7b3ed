"""Measures what small epochs cost, without a broker: ``python -m bench.small_epochs``.

A source, a window over it and their sweeper run in memory (`errata.testing.Driver`). Each epoch has
ten records, one of which corrects a window that has closed. Prints the processor time of an epoch
by role. ``--profile`` prints where it goes instead.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from errata import Network, tumbling
from errata.testing import Driver

TRADES = 10
STEP_MS = 1000
"""How far event time goes on in an epoch."""
SYMBOLS = 20


def network(mode: str) -> Network:
    """Return trades by symbol and minute."""
    net = Network("small")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
        identity=["key"],
        event_time="at",
        keep="30d",
    )
    trades.aggregate(
        "totals",
        by=["symbol"],
        window=tumbling("1m"),
        mode=mode,
        total="sum(price)",
        count="count(*)",
        keep="30d",
    )
    return net


def epochs(rng: random.Random, records: int) -> Iterator[list[bytes]]:
    """Yield the records of one epoch after another; in each, one replaces a trade of before."""
    sent: list[dict[str, Any]] = []
    at = 0
    while True:
        at += STEP_MS
        lines = []
        for number in range(records):
            if number == 0 and len(sent) > 100 * records:
                place = rng.randrange(len(sent) - 80 * records)
                after = sent[place] | {"price": rng.randrange(1000)}
                lines.append({"op": "replace", "before": sent[place], "after": after})
                sent[place] = after
                continue
            after = {
                "key": f"k{len(sent)}",
                "at": at + number,
                "symbol": f"S{rng.randrange(SYMBOLS)}",
                "price": rng.randrange(1000),
            }
            lines.append({"op": "insert", "after": after})
            sent.append(after)
        yield [json.dumps(line).encode() for line in lines]


def timed(
    spent: Counter[str], role: str, call: Callable[[], bool], clock: Callable[[], float]
) -> bool:
    """Make a call, and count its processor time for a role."""
    before = clock()
    busy = call()
    spent[role] += clock() - before
    return busy


def run_epoch(driver: Driver, lines: list[bytes], spent: Counter[str]) -> None:
    """Send the records of one epoch, and run all roles until none has anything to do."""
    driver.epoch += 1
    driver.send("trades", lines)
    roles = [
        (type(task).__name__, lambda attempt=attempt: bool(next(attempt)))
        for task, attempt in zip(driver.tasks, driver.attempts, strict=True)
    ]
    roles += [("Sweeper", sweeper.follow) for sweeper in driver.sweepers.values()]
    quiet = 0
    while quiet < 2:
        busy = False
        for role, call in roles:
            while timed(spent, role, call, time.process_time) and role != "Sweeper":
                busy = True
        quiet = 0 if busy else quiet + 1


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench.small_epochs", description=__doc__)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--records", type=int, default=TRADES)
    parser.add_argument("--mode", default="upstream", choices=("upstream", "downstream"))
    parser.add_argument("--profile", action="store_true")
    told = parser.parse_args(argv)
    spent: Counter[str] = Counter()
    with Driver(network(told.mode)) as driver:
        given = epochs(random.Random(1), told.records)
        for _ in range(200):  # windows close, and everything is warm
            run_epoch(driver, next(given), Counter())
        gc.collect()
        gc.freeze()
        profile = cProfile.Profile()
        if told.profile:
            profile.enable()
        for _ in range(told.epochs):
            run_epoch(driver, next(given), spent)
        profile.disable()
    if told.profile:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(70)
        return 0
    table = Table("role", "ms of processor time an epoch", box=MARKDOWN)
    for role, seconds in [*sorted(spent.items()), ("all", spent.total())]:
        table.add_row(role, f"{1000 * seconds / told.epochs:.1f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
