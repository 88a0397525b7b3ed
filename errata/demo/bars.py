"""The demo's network with daily bars on Spark: open, high, low, close and p99 of trades.

A percentile needs all values of a group and day, and this state can outgrow one machine, so Spark's
store keeps it. The bars are revised like all other results.
"""

from errata import Network, Stream, ohlc, tumbling
from errata.demo import tape

net = Network("tape", dict(tape.net.declarations), list(tape.net.sinks))

Stream(net, "trades").aggregate(
    "bars",
    place="spark",
    by=["product", "currency"],
    window=tumbling("1d"),
    emit="on_update",  # a bar is emitted from the first trade of its day on
    fields={
        **ohlc(tape.at_risk),
        "p99": f"percentile({tape.at_risk}, 0.99)",
        "trades": "count(*)",
    },
    keep="10y",
)
