"""A seeded tape of trades with corrections, of any size.

There is a trade every 10 ms in event time, for one of 1,000 products (the k-th is chosen in
proportion to 1 / (k + 10)), each in one of two currencies; one trade in ten has no index factor. 1
% of trades are late, by up to three minutes. 1 % are replaced, with another notional, and a further
0.2 % deleted, a second to an hour after they arrived (the logarithm of the delay is uniform). The
same seed and count give the same tape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.avro import revision_schema, tuple_schema
from errata.schemas.encode import Encoder
from errata.schemas.fields import FieldType

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

Encoded = tuple[dict[str, object], Sequence[bytes], Sequence[bytes | None]]
"""A schema, and the keys and bodies of records."""


def tape(count: int, *, seed: int = 7, products: int | None = None) -> pl.DataFrame:
    """Return `count` trades and their corrections as a frame of revisions in order of arrival.

    Args:
        count: The number of trades.
        seed: Seed of the random generator.
        products: The number of products, all equally likely; as described above when not given.
    """
    rng = np.random.default_rng(seed)
    weight = 1 / (np.arange(PRODUCTS) + 10.0)
    if products is None:
        product = rng.choice(PRODUCTS, count, p=weight / weight.sum())
    else:
        product = rng.integers(0, products, count)
    at = START_MS + np.arange(count) * SPACING_MS
    late = np.where(rng.random(count) < 0.01, rng.uniform(0, 180_000, count), 0)
    notional = rng.integers(1_000_00, 1_000_000_00, count)
    factor = rng.integers(90_000_000, 100_000_000, count)
    known = rng.random(count) < 0.9
    fate = rng.random(count)
    replaced, deleted = np.flatnonzero(fate < 0.01), np.flatnonzero((fate >= 0.01) & (fate < 0.012))

    def later(trades: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        wait = np.exp(rng.uniform(np.log(1_000), np.log(3_600_000), len(trades)))
        return np.asarray((at + late)[trades] + wait, np.float64)

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


def inserts(count: int) -> pl.DataFrame:
    """Return trades of ten products alone, in order, one a second."""
    trades = tape(count, products=10)
    trades = trades.filter(trades["op"] == frames.INSERT).sort("after.at")
    at = START_MS + np.arange(trades.height) * 1_000
    return trades.with_columns(pl.Series("after.at", at))


def encoded_by_product(revisions: pl.DataFrame) -> Encoded:
    """Return the tape of inserts as `encoded`, but with the product as key."""
    schema, _, bodies = encoded(revisions)
    return schema, revisions["after.product"].cast(pl.Binary).to_list(), bodies


def encoded(revisions: pl.DataFrame) -> Encoded:
    """Return the tape's schema, and its keys and Avro bodies."""
    fields = {name: FieldType.parse(kind) for name, kind in FIELDS.items()}
    schema = revision_schema("tape", fields)
    sides = revisions.with_columns(
        (pl.col("op") != frames.INSERT).alias("before"),
        (pl.col("op") != frames.DELETE).alias("after"),
    )
    bodies = Encoder(schema).encode(sides, task="ticker", attempt=1, epoch=0)
    return schema, _keys(revisions), bodies


def upserts(revisions: pl.DataFrame) -> Encoded:
    """Return the tape as upserts: the tuples' schema, keys, and Avro bodies, None for deletes."""
    schema = tuple_schema("trade", {name: FieldType.parse(kind) for name, kind in FIELDS.items()})
    dead = revisions["op"] == frames.DELETE
    tuples = frames.side(revisions, frames.AFTER, list(FIELDS))
    # a delete has no tuple to encode, so its original is used
    bodies = Encoder(schema).encode(
        tuples.with_columns(
            pl.coalesce(name, revisions[frames.BEFORE + name]).alias(name) for name in FIELDS
        )
    )
    values = [None if gone else body for gone, body in zip(dead, bodies, strict=True)]
    return schema, _keys(revisions), values


def _keys(revisions: pl.DataFrame) -> list[bytes]:
    key = pl.coalesce("after.key", "before.key").cast(pl.Binary)
    return revisions.select(key).to_series().to_list()
