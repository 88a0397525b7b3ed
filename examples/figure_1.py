"""Figure 1 of the Borealis paper: the 2:00 price is corrected, and the two sums with it.

Sums of IBM's price over 30 minutes, every 20 minutes; worked out in both modes, without a broker.
"""

from errata import Network, hopping
from errata.testing import Driver

FIELDS = {"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "decimal(9,2)"}
HALF_HOURS = hopping("30m", every="20m")

net = Network("figure_1")
c1 = net.source("c1", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
c2 = c1.aggregate("c2", by=["symbol"], window=HALF_HOURS, total="sum(price)", keep="1d")


def quote(clock: str, price: str) -> dict[str, object]:
    """Return the price at a time of the day, which names it."""
    hour, minute = map(int, clock.split(":"))
    return {"key": clock, "at": (hour * 60 + minute) * 60_000, "symbol": "IBM", "price": price}


for mode in ("upstream", "downstream"):
    with Driver(net, mode=mode) as driver:
        for clock, price in {"1:40": "30", "1:50": "25", "2:00": "25", "2:15": "37"}.items():
            driver.send("c1", {"op": "insert", "after": quote(clock, price)})
        driver.end()  # every window closes: 80 from 1:40, 62 from 2:00
        driver.revisions("c2")
        driver.send("c1", {"op": "replace", "after": quote("2:00", "22")})
        driver.close_epoch()
        for revised in driver.revisions("c2"):
            before, after = revised["before"], revised["after"]
            hour, minute = divmod(after["window_start"] // 60_000, 60)
            print(f"{mode:>10}: {hour}:{minute:02}  {before['total']} -> {after['total']}")
