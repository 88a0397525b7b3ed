"""Moving average, variance and volatility: in every mode those of the ticks in the window."""

import math
import random
import statistics
from itertools import pairwise
from typing import Any

import pytest

from errata import Network, sliding
from errata.testing import Driver

HISTORICAL = (
    "sqrt((power(realised_volatility(price), 2)"
    " - power(ln(last(price) / first(price)), 2) / (count(price) - 1)) / (count(price) - 2))"
)
MOVING = {"average": "avg(price)", "variance": "variance(price)", "spread": "stddev(price)"}
VOLATILE = {"realised": "realised_volatility(price)", "historical": HISTORICAL}
SIZE = 50


def wanted(prices: dict[int, float], at: int) -> dict[str, float | None]:
    inside = [prices[t] for t in sorted(prices) if at - SIZE < t <= at]
    returns = [math.log(b / a) for a, b in pairwise(inside)]
    return {
        "average": statistics.fmean(inside),
        "variance": statistics.variance(inside) if len(inside) > 1 else None,
        "spread": statistics.stdev(inside) if len(inside) > 1 else None,
        "realised": math.hypot(*returns) if returns else None,
        "historical": statistics.stdev(returns) if len(returns) > 1 else None,
    }


def near(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9)


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("mode", ["upstream", "downstream", "resident", "adaptive"])
def test_each_result_is_that_of_its_window_also_when_ticks_are_corrected(
    mode: str, emit: str
) -> None:
    net = Network("moving")
    fields = {"key": "string", "at": "timestamp-millis", "price": "double"}
    ticks = net.source(
        "ticks", fields=fields, identity=["key"], event_time="at", partition_by=[], keep="1d"
    )
    results = MOVING if mode == "downstream" else MOVING | VOLATILE
    window: Any = sliding(SIZE)
    ticks.aggregate("moving", window=window, mode=mode, emit=emit, keep="1d", fields=results)
    dice, prices = random.Random(7), dict[int, float]()
    with Driver(net) as driver:
        for start in range(0, 200, 20):
            new = list(range(start, start + 20, 2))
            for at in new + dice.sample(sorted(prices), 2 if start % 40 and prices else 0):
                prices[at] = 100 * math.exp(dice.gauss(0, 0.02))
                after = {"key": str(at), "at": at, "price": prices[at]}
                driver.send("ticks", {"op": "insert" if at in new else "replace", "after": after})
            driver.close_epoch()
        driver.end()
        rows = driver.table("moving")
    assert len(rows) == len(prices)
    for row in rows:
        right = wanted(prices, row["window_end"] - 1)
        assert all(near(row[name], right[name]) for name in results), (row, right)
