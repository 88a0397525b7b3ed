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
LATENESS_MS = 5 * 60_000


@dataclass(frozen=True)
class Windows:
    """The windows of a query.

    Args:
        size_ms: Their length.
        slide_ms: Distance between their starts.
        by: The fields whose values make a group.
    """

    size_ms: int
    slide_ms: int
    by: tuple[str, ...]

    def totals(self, trades: pl.DataFrame) -> pl.DataFrame:
        """Return the windows of trades, computed in one pass and independently of Errata."""
        first = (pl.col("at") - self.size_ms) // self.slide_ms + 1
        last = pl.col("at") // self.slide_ms + 1
        factor = pl.coalesce("index_factor", pl.lit(10**8, pl.Int128))
        return (
            trades.with_columns(pl.int_ranges(first, last).alias("window_start"))
            .explode("window_start")
            .with_columns(pl.col("window_start") * self.slide_ms)
            .group_by(*self.by, "window_start")
            .agg(
                (pl.col("notional") * factor).sum().alias("traded"),
                pl.len().cast(pl.Int64).alias("trades"),
            )
        )


DEMO = Windows(30 * 60_000, 20 * 60_000, ("product", "currency"))
OVERLAPPING = Windows(1_000_000, 1_000, ("product",))
"""Each tuple is in 1,000 windows."""


@dataclass(frozen=True)
class Tape:
    """Trades as records.

    Args:
        envelope: The envelope of the records.
        revisions: Returns the revisions of a number of trades, in order of arrival.
        encoded: Encodes them.
    """

    envelope: str
    revisions: Callable[[int], pl.DataFrame]
    encoded: Callable[[pl.DataFrame], tape.Encoded]


TAPES = {
    "revisions": Tape("native", tape.tape, tape.encoded),
    "upserts": Tape("upsert", tape.tape, tape.upserts),
    "inserts": Tape("native", tape.inserts, tape.encoded_by_product),
}


@dataclass(frozen=True)
class Variant:
    """A network over the tape.

    Args:
        tape: The tape that it reads, one of `TAPES`.
        arc: The arc whose content is compared with a recomputation.
        task: The task that finishes last.
        build: Adds the boxes behind the source.
        wanted: Computes the expected content of the arc from the surviving trades.
        apart: Whether the sweepers run in a separate process.
        together: Whether all runs in one process.
        is_bound: Whether its source is the arc `UPPER` of another network, which holds the tape.
    """

    tape: str
    arc: str
    task: str
    build: Callable[[Stream], None]
    wanted: Callable[[pl.DataFrame], pl.DataFrame]
    apart: bool = False
    together: bool = False
    is_bound: bool = False

    def network(self, name: str, topic: str) -> Network:
        """Return the network with a name, over a topic of its tape."""
        net = Network(name)
        if self.is_bound:
            self.build(
                net.source("trades", topic=UPPER, envelope="arc", event_time="at", keep="10y")
            )
            return net
        trades: Stream = net.source(
            "trades",
            topic=topic,
            envelope=TAPES[self.tape].envelope,
            fields=tape.FIELDS,
            identity=["key"],
            event_time="at",
            partition_by=["product"],
            lateness=LATENESS_MS,
            keep="10y",
        )
        self.build(trades)
        return net

    def expected(self, count: int) -> pl.DataFrame:
        """Return the expected final content of its arc after `count` trades."""
        history = TAPES[self.tape].revisions(count)
        history = history.with_columns(pl.coalesce("after.key", "before.key").alias("key"))
        last = history.unique(subset="key", keep="last")
        return self.wanted(frames.entering(last, list(tape.FIELDS)))

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


def exported(trades: Stream) -> None:
    """Add an arc that keeps its history for longer than the source, as bound networks need it."""
    trades.where("kept", "true", keep="20y")


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


def overlapping(trades: Stream) -> None:
    """Add sums over windows that overlap a thousandfold."""
    size_ms, slide_ms, by = OVERLAPPING.size_ms, OVERLAPPING.slide_ms, OVERLAPPING.by
    trades.aggregate(
        "totals",
        by=by,
        window=hopping(size_ms, every=slide_ms),
        keep="10y",
        traded=f"sum({NOTIONAL})",
        trades="count(*)",
    )


def as_they_are(trades: pl.DataFrame) -> pl.DataFrame:
    """Return the trades."""
    return trades


UPPER = "upper.kept"
"""The topic of an arc that holds the tape."""
EXPORTED = Variant("revisions", "kept", "trades.0", exported, as_they_are, together=True)
"""The network that has this arc."""
VARIANTS = {
    "pass-through": Variant("revisions", "trades", "ingest.trades.0", no_box, as_they_are),
    "window": Variant("revisions", "totals", "trades.0", window, DEMO.totals),
    "window, together": Variant(
        "revisions", "totals", "trades.0", window, DEMO.totals, together=True
    ),
    "window, apart": Variant("revisions", "totals", "trades.0", window, DEMO.totals, apart=True),
    "window, no max": Variant("revisions", "totals", "trades.0", window_without_max, DEMO.totals),
    "window, bound": Variant(
        "revisions", "totals", "trades.0", window, DEMO.totals, together=True, is_bound=True
    ),
    "upserts": Variant("upserts", "totals", "trades.0", window, DEMO.totals),
}
PEERS = {
    "signed": VARIANTS["window, no max"],
    "upserts": Variant("upserts", "totals", "trades.0", window_without_max, DEMO.totals),
    "sliding": Variant("inserts", "totals", "trades.0", overlapping, OVERLAPPING.totals),
}
"""By query: what other engines can compute, too (`bench.peers`)."""
