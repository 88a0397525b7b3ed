"""Trades under old symbols follow chains of renames to the symbol of today.

How long a chain is only the data says: it is followed in a loop. A rename that is corrected later
revises the daily totals of every symbol behind it, closed or not.
"""

from errata import Network, tumbling
from errata.testing import Driver

net = Network("renames")
renames = net.source(
    "renames",
    fields={"old": "string", "at": "timestamp-millis", "new": "string"},
    identity=["old"],
    event_time="at",
    keep="10y",
)
trades = net.source(
    "trades",
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "size": "long"},
    identity=["key"],
    event_time="at",
    keep="10y",
)
FOLLOWED = "coalesce(renames.new, new)"
today = net.iterate(
    "today",
    renames,
    lambda known: known.lookup("further", renames, on={"new": "old"}, new=FOLLOWED),
    keep="10y",
)
named = trades.lookup("named", today, on={"symbol": "old"}, symbol="coalesce(today.new, symbol)")
totals = named.aggregate(
    "totals", by=["symbol"], window=tumbling("1d"), traded="sum(size)", keep="10y"
)


def show(driver: Driver, what: str) -> None:
    """Print how totals were revised since the last time."""
    told = []
    for revised in driver.revisions("totals"):
        before, after = (revised.get(side) for side in ("before", "after"))
        symbol = (before or after)["symbol"]
        told.append(f"{symbol} {before and before['traded']} -> {after and after['traded']}")
    print(f"{what}: {', '.join(sorted(told))}")


def rename(old: str, new: str) -> dict[str, object]:
    """Return a rename, which its old symbol names."""
    return {"old": old, "at": 0, "new": new}


if __name__ == "__main__":
    with Driver(net) as driver:
        for number, symbol in enumerate(["FB", "FCB", "META", "TWTR"]):
            trade = {"key": str(number), "at": number, "symbol": symbol, "size": 10**number}
            driver.send("trades", {"op": "insert", "after": trade})
        for old, new in (("FCB", "FBK"), ("FBK", "FB"), ("FB", "META"), ("TWTR", "X")):
            driver.send("renames", {"op": "insert", "after": rename(old, new)})
        driver.end()  # the day is closed
        show(driver, "at the end of the day")
        driver.send("renames", {"op": "replace", "after": rename("FB", "MVRS")})
        driver.close_epoch()
        show(driver, "a rename is corrected")
        driver.send("renames", {"op": "delete", "before": rename("FBK", "FB")})
        driver.close_epoch()
        show(driver, "one of the chain is deleted")
        driver.send("renames", {"op": "insert", "after": rename("X", "TWTR")})
        driver.close_epoch()
        show(driver, "one closes a circle")
        driver.send("renames", {"op": "replace", "after": rename("X", "XAI")})
        driver.close_epoch()
        show(driver, "the circle is broken")
