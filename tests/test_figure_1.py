"""Figure 1 of Borealis: the 2:00 price is corrected after both its windows were closed."""

import pytest

from errata import Network, hopping
from errata.testing import Driver

MINUTE = 60_000
QUOTES = [
    ("1:40", 100, 20),
    ("1:50", 110, 23),
    ("2:00", 120, 25),
    ("2:05", 125, 12),
    ("2:20", 140, 25),
    ("3:00", 180, 1),  # the watermark passes both windows
]


def borealis() -> Network:
    """C1 -> B (sum of prices, 30 minutes every 20) -> C2."""
    net = Network("borealis")
    c1 = net.source(
        "prices",
        fields={"quote": "string", "at": "timestamp-millis", "price": "decimal(9,2)"},
        identity=["quote"],
        event_time="at",
        keep="1d",
    )
    c1.aggregate("sums", by=[], window=hopping("30m", every="20m"), total="sum(price)", keep="1d")
    return net


def quote(name: str, minute: int, price: int) -> dict[str, object]:
    return {"quote": name, "at": minute * MINUTE, "price": price}


def window(start: int, total: int) -> dict[str, int]:
    return {
        "window_start": start * MINUTE,
        "window_end": (start + 30) * MINUTE,
        "total": total,
    }


@pytest.mark.parametrize("mode", ["upstream", "downstream"])
def test_figure_1_revises_both_windows_of_the_corrected_price(mode):
    """
    1:40            2:00  2:10           2:30
     |---- 20 + 23 --+- 25 + 12 -|                80 -> 77
                     |- 25 + 12 -+-- 25 ---|      62 -> 59
    """
    with Driver(borealis(), mode=mode) as driver:
        for name, minute, price in QUOTES:
            driver.send("prices", {"op": "insert", "after": quote(name, minute, price)})
        driver.close_epoch()
        closed = driver.table("sums")
        assert window(100, 80) in closed
        assert window(120, 62) in closed
        driver.revisions("sums")
        driver.send(
            "prices",
            {"op": "replace", "before": quote("2:00", 120, 25), "after": quote("2:00", 120, 22)},
        )
        epoch = driver.close_epoch()
        assert driver.revisions("sums") == [
            {"op": "replace", "before": window(100, 80), "after": window(100, 77), "epoch": epoch},
            {"op": "replace", "before": window(120, 62), "after": window(120, 59), "epoch": epoch},
        ]
