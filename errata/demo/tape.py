"""The demo's network: trades per product and currency, in windows of half an hour.

Trades are cancelled, corrected and reported late, some by four years; every total that this
invalidates is revised. The same aggregate runs twice: one is revised by replaying the inputs of a
window (upstream), the other by correcting the result emitted before (downstream).
"""

from errata import Network, hopping

net = Network("tape")

trades = net.source(
    "trades",
    topic="swaps.credits",
    envelope="native",
    format="avro",
    fields={
        "key": "string",
        "at": "timestamp-millis",
        "product": "string",
        "underlier": "string?",
        "currency": "string",
        "notional": "decimal(18,2)",
        "price": "decimal(18,9)?",
        "premium": "decimal(18,5)?",
        "index_factor": "decimal(10,9)?",  # what is left of an index after defaults
    },
    identity=["key"],
    event_time="at",
    partition_by=["product", "currency"],
    lateness="5m",
    idle_after="3s",
    keep="10y",  # makes the arc a connection point: closed windows can be replayed from it
)

at_risk = "notional * coalesce(index_factor, 1)"

for mode in ("upstream", "downstream"):
    trades.aggregate(
        f"totals_{mode}",
        scope=mode,  # a process of its own
        mode=mode,
        by=["product", "currency"],
        window=hopping("30m", every="20m"),
        traded=f"sum({at_risk})",
        average=f"avg({at_risk})",
        trades="count(*)",
        largest=f"max({at_risk})",
        keep="10y",  # emitted results can be fetched again
    )
