"""The measured variants: networks over the tape, and their expected results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from bench import tape
from errata import Network, hopping
from errata.processors.declare.network import Stream
from errata.processors.plan.topology import ingest_scope
from errata.processors.wire.task_id import TaskId
from errata.schemas import revisions as frames

NOTIONAL = "notional * coalesce(index_factor, 1)"
WITHOUT_MAX = {
    "traded": f"sum({NOTIONAL})",
    "average": f"avg({NOTIONAL})",
    "trades": "count(*)",
}
SIZE_MS, SLIDE_MS = 30 * 60_000, 20 * 60_000


@dataclass(frozen=True)
class Variant:
    """A network over the tape.

    Args:
        envelope: The envelope of its source topic: native or upsert.
        arc: The arc whose content is compared with a recomputation.
        task: The task that finishes last.
        build: Adds the boxes behind the source.
        wanted: Computes the expected content of the arc from the surviving trades.
        apart: Whether the sweepers run in a separate process.
        together: Whether all runs in one process.
    """

    envelope: str
    arc: str
    task: str
    build: Callable[[Stream], None]
    wanted: Callable[[pl.DataFrame], pl.DataFrame]
    apart: bool = False
    together: bool = False

    def network(self, name: str, topic: str) -> Network:
        """Return the network with a name, over a topic of the tape."""
        net = Network(name)
        trades: Stream = net.source(
            "trades",
            topic=topic,
            envelope=self.envelope,
            fields=tape.FIELDS,
            identity=["key"],
            event_time="at",
            partition_by=["product", "currency"],
            lateness="5m",
            keep="10y",
        )
        self.build(trades)
        return net

    @property
    def roles(self) -> dict[str, list[str]]:
        """The scopes of each process; the sweepers' process has none."""
        if TaskId.parse(self.task).scope.is_ingest:
            return {"ingest": [ingest_scope("trades")]}
        if self.together:
            return {"ingest": [ingest_scope("trades"), "trades"]}
        roles = {"ingest": [ingest_scope("trades")], "scope": ["trades"]}
        return roles | ({"sweepers": []} if self.apart else {})


def no_box(trades: Stream) -> None:
    """Add nothing: the source's arc is a connection point anyway."""


def window(trades: Stream) -> None:
    """Add the demo's query."""
    _totals(trades, fields=WITHOUT_MAX | {"largest": f"max({NOTIONAL})"})


def window_without_max(trades: Stream) -> None:
    """Add the demo's query without the maximum, which can't be compensated."""
    _totals(trades, fields=WITHOUT_MAX)


def _totals(trades: Stream, *, fields: dict[str, str]) -> None:
    trades.aggregate(
        "totals",
        by=["product", "currency"],
        window=hopping("30m", every="20m"),
        keep="10y",
        fields=fields,
    )


def trades_left(count: int) -> pl.DataFrame:
    """Return the trades of the tape that survive all its corrections."""
    history = tape.tape(count).with_columns(pl.coalesce("after.key", "before.key").alias("key"))
    last = history.unique(subset="key", keep="last")
    return frames.entering(last, list(tape.FIELDS))


def totals(trades: pl.DataFrame) -> pl.DataFrame:
    """Return the windows of these trades, computed in one pass and independently of Errata."""
    first = (pl.col("at") - SIZE_MS) // SLIDE_MS + 1
    factor = pl.coalesce("index_factor", pl.lit(10**8, pl.Int128))
    return (
        trades.with_columns(
            pl.int_ranges(first, pl.col("at") // SLIDE_MS + 1).alias("window_start")
        )
        .explode("window_start")
        .with_columns(pl.col("window_start") * SLIDE_MS)
        .group_by("product", "currency", "window_start")
        .agg(
            (pl.col("notional") * factor).sum().alias("traded"),
            pl.len().cast(pl.Int64).alias("trades"),
        )
    )


VARIANTS = {
    "pass-through": Variant("native", "trades", "ingest.trades.0", no_box, lambda trades: trades),
    "window": Variant("native", "totals", "trades.0", window, totals),
    "window, together": Variant("native", "totals", "trades.0", window, totals, together=True),
    "window, apart": Variant("native", "totals", "trades.0", window, totals, apart=True),
    "window, no max": Variant("native", "totals", "trades.0", window_without_max, totals),
    "upserts": Variant("upsert", "totals", "trades.0", window, totals),
}
