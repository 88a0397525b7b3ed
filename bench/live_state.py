"""Measures live state while history grows a hundredfold (L7): ``make live-state``.

A feed of corrected trades goes through one aggregate, in each mode. The number of rows that its
task holds in memory is recorded five times in every tenfold. Prints it, and draws it as
``docs/live_state.svg``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from errata import Network, tumbling
from errata.processors.tasks.scope_task import ScopeTask
from errata.render import lines as lines_of
from errata.testing import Driver

MODES = {"upstream": "#2a6f97", "downstream": "#2f9e44", "resident": "#c92a2a"}
FIRST, A_DECADE = 1_000, 5
OPEN_TUPLES, GROUPS, SPACING_MS = 500, 20, 1_000
SVG = Path(__file__).parents[1] / "docs" / "live_state.svg"

Point = tuple[int, int]


def network(mode: str) -> Network:
    """Return the network that is measured."""
    net = Network("live")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "desk": "string", "price": "long"},
        identity=["key"],
        event_time="at",
        keep="10y",
    )
    trades.aggregate(
        "totals",
        by=["desk"],
        window=tumbling(OPEN_TUPLES * SPACING_MS),
        mode=mode,
        keep="10y",
        total="sum(price)",
        best="max(price)",
    )
    return net


def lines(since: int, upto: int, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield trades, and corrections of one in a hundred of all trades so far."""
    for number in range(since, upto):
        yield {"op": "insert", "after": trade(number, int(rng.integers(1, 1000)))}
    for number in rng.integers(0, upto, (upto - since) // 100):
        yield {"op": "replace", "after": trade(int(number), int(rng.integers(1, 1000)))}


def trade(number: int, price: int) -> dict[str, Any]:
    """Return the trade with a number."""
    desk = f"desk {number % GROUPS}"
    return {"key": f"{number}", "at": number * SPACING_MS, "desk": desk, "price": price}


def held(driver: Driver) -> int:
    """Return how many rows the tasks hold in memory for their windows."""
    tasks = (task for task in driver.tasks if isinstance(task, ScopeTask))
    return sum(live.height for task in tasks for live in task.memory.live.values())


def measure(mode: str, most: int) -> list[Point]:
    """Return (trades so far, rows in memory) while history grows from 1,000 trades."""
    steps = np.geomspace(FIRST, most, 1 + round(A_DECADE * np.log10(most / FIRST))).astype(int)
    rng, points, done = np.random.default_rng(7), [], 0
    with Driver(network(mode)) as driver:
        for upto in steps.tolist():
            while done < upto:
                then = min(upto, done + 1_000)
                driver.send("trades", lines(done, then, rng))
                driver.close_epoch()
                done = then
            points.append((upto, held(driver)))
    return points


def drawn(found: dict[str, list[Point]]) -> str:
    """Return the measurement as SVG."""
    some = {mode: [(x, max(y, 1)) for x, y in points] for mode, points in found.items()}
    return lines_of.drawn(some, MODES, title="rows in memory while history grows", x="trades")


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=100 * FIRST, help="trades")
    parser.add_argument("--draw", type=Path, default=SVG, help="where the picture goes")
    options = parser.parse_args()
    found = {mode: measure(mode, options.most) for mode in reversed(MODES)}
    print(f"{'trades':>10}" + "".join(f"{mode:>12}" for mode in found))
    for row in zip(*found.values(), strict=True):
        print(f"{row[0][0]:10,}" + "".join(f"{rows:12,}" for _, rows in row))
    options.draw.write_text(drawn(found))


if __name__ == "__main__":
    main()
