"""A seeded tape of trades with corrections, as large as wanted.

A trade every 10 ms in event time, for one of 1,000 products (some traded far more than others) in
one of two currencies; 1 % come up to three minutes late; 1 % are replaced and 0.2 % deleted, a
second to an hour later. The same seed and count give the same tape.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from errata import Network, hopping
from processors.network import Stream
from schemas import revisions as frames
from schemas.avro import revision_schema
from schemas.encode import Encoder
from schemas.fields import FieldType

START_MS = 1_784_073_600_000
SPACING_MS = 10
PRODUCTS = 1_000
FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "product": "string",
    "currency": "string",
    "notional": "decimal(18,2)",
    "index_factor": "decimal(9,8)?",
}


def tape(count: int, *, seed: int = 7) -> pl.DataFrame:
    """Return `count` trades and their corrections as a frame of revisions in order of arrival."""
    rng = np.random.default_rng(seed)
    weight = 1 / (np.arange(PRODUCTS) + 10.0)
    product = rng.choice(PRODUCTS, count, p=weight / weight.sum())
    at = START_MS + np.arange(count) * SPACING_MS
    late = np.where(rng.random(count) < 0.01, rng.uniform(0, 180_000, count), 0)
    notional = rng.integers(1_000_00, 1_000_000_00, count)
    factor = rng.integers(90_000_000, 100_000_000, count)
    known = rng.random(count) < 0.9
    fate = rng.random(count)
    replaced, deleted = np.flatnonzero(fate < 0.01), np.flatnonzero((fate >= 0.01) & (fate < 0.012))

    def later(trades: np.ndarray) -> np.ndarray:
        wait = np.exp(rng.uniform(np.log(1_000), np.log(3_600_000), len(trades)))
        return (at + late)[trades] + wait

    trade = np.r_[np.arange(count), replaced, deleted]
    op = np.r_[
        np.full(count, frames.INSERT),
        np.full(len(replaced), frames.REPLACE),
        np.full(len(deleted), frames.DELETE),
    ]
    arrival = np.r_[at + late, later(replaced), later(deleted)]
    after = np.r_[notional, rng.integers(1_000_00, 1_000_000_00, len(replaced)), notional[deleted]]
    order = np.argsort(arrival, kind="stable")
    trade, op, after = trade[order], op[order], after[order]
    tuples = pl.DataFrame(
        {
            "key": pl.Series(trade).cast(pl.String).str.zfill(9),
            "at": at[trade],
            "product": "P" + pl.Series(product[trade]).cast(pl.String).str.zfill(4),
            "currency": pl.Series(np.where(product[trade] % 3 == 0, "EUR", "USD")),
            "notional": pl.Series(after).cast(pl.Int128),
            "index_factor": pl.select(
                pl.when(pl.Series(known[trade])).then(pl.Series(factor[trade]))
            )
            .to_series()
            .cast(pl.Int128),
        }
    )
    before = tuples.with_columns(pl.Series(notional[trade]).cast(pl.Int128).alias("notional"))
    return frames.between(
        before, pl.Series(op != frames.INSERT), tuples, pl.Series(op != frames.DELETE)
    )


def encoded(revisions: pl.DataFrame) -> tuple[dict[str, object], list[bytes], list[bytes]]:
    """Return the tape's schema, and its keys and Avro bodies."""
    fields = {name: FieldType.parse(kind) for name, kind in FIELDS.items()}
    schema = revision_schema("tape", fields)
    sides = revisions.with_columns(
        (pl.col("op") != frames.INSERT).alias("before"),
        (pl.col("op") != frames.DELETE).alias("after"),
    )
    bodies = Encoder(schema).encode(sides, task="ticker", attempt=1, epoch=0)
    keys = revisions.select(pl.coalesce("after.key", "before.key").cast(pl.Binary)).to_series()
    return schema, keys.to_list(), bodies


def network(name: str, topic: str, *, largest: bool = True) -> Network:
    """Return the demo's query over the tape."""
    net = Network(name)
    trades: Stream = net.source(
        "trades",
        topic=topic,
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        partition_by=["product", "currency"],
        lateness="5m",
        keep="10y",
    )
    more = {"largest": "max(notional * coalesce(index_factor, 1))"} if largest else {}
    trades.aggregate(
        "totals",
        by=["product", "currency"],
        window=hopping("30m", every="20m"),
        keep="10y",
        traded="sum(notional * coalesce(index_factor, 1))",
        average="avg(notional * coalesce(index_factor, 1))",
        trades="count(*)",
        **more,
    )
    return net
