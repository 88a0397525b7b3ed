"""Two real feeds whose corrections never end, the networks they are put through, and the truth.

The truth is recomputed from the feed's own lines in plain Python and exact arithmetic; it shares no
code with the boxes. Both networks have their aggregate three times, in three modes.
"""

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from errata import Network, hopping

HERE = Path(__file__).parent
FLIGHTS = HERE / "data" / "flights_2013_01.csv.gz"
GDP = HERE.parents[2] / "shared" / "data" / "gdp_vintages" / "gdp.csv.gz"
MODES = {"up": "upstream", "down": "downstream", "res": "resident"}
WAYS: dict[str, dict[str, Any]] = {
    name: {"mode": mode, "scope": name} for name, mode in MODES.items()
}
ON_SPARK: dict[str, dict[str, Any]] = {"up": {**WAYS["up"], "place": "process"}, "spark": {}}
"""How an aggregate is done, by name of its arc: in three modes, or in a process and on Spark."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Row = dict[str, Any]


@dataclass(frozen=True)
class Feed:
    """A feed, its network and its truth.

    Args:
        file: Its lines.
        network: Makes the network; arcs ``up``, ``down`` and ``res`` are to be the same.
        after: Makes a tuple of a line of the file.
        truth: Makes the results of the tuples that are left, by group and window start.
        count: Lines of the file.
    """

    file: Path
    network: Callable[..., Network]
    after: Callable[[Row], Row]
    truth: Callable[[list[Row]], list[Row]]
    count: int

    def lines(self) -> Iterator[Row]:
        """Yield native revisions, without originals where the file has none of all fields."""
        with gzip.open(self.file, "rt", newline="") as stream:
            for row in csv.DictReader(stream):
                after = self.after(row)
                if row["op"] == "delete":
                    yield {"op": "delete", "before": after}
                else:
                    yield {"op": row["op"], "after": after}

    def left(self) -> list[Row]:
        """Return the tuples that the feed leaves."""
        held: dict[str, Row] = {}
        for line in self.lines():
            if line["op"] == "delete":
                del held[line["before"]["key"]]
            else:
                held[line["after"]["key"]] = line["after"]
        return list(held.values())


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def windows(at: int, size: int, slide: int) -> Iterator[int]:
    """Yield the starts of the windows that hold an event time."""
    start = at // slide * slide
    while start + size > at:
        yield start
        start -= slide


# -------------------------------------------------------------------------------- flights

FLIGHT_RESULTS = {
    "flights": "count(*)",
    "late": "count(*) filter (where delay > 15)",
    "share": "count(*) filter (where status = 'arrived') / count(*)",
    "mean": "avg(delay)",
    "best": "min(delay)",
    "worst": "max(delay)",
    "spread": "stddev_samp(delay)",
    "first": "first(status)",
    "last": "last(key)",
}


def flights(
    ways: dict[str, dict[str, Any]] = WAYS, *, where: str = "", place: str | None = None
) -> Network:
    """Delays by airport and carrier, in windows of three hours every hour."""
    net = Network(f"flights{where}", place=place)
    source = net.source(
        "flights",
        topic=net.name,
        format="json",
        fields={
            "key": "string",
            "at": "timestamp-millis",
            "origin": "string",
            "carrier": "string",
            "status": "string",
            "delay": "long",
        },
        identity=["key"],
        event_time="at",
        keep="1y",
    )
    for name, how in ways.items():
        source.aggregate(
            name,
            by=["origin", "carrier"],
            window=hopping("3h", every="1h"),
            keep="1y",
            fields=FLIGHT_RESULTS,
            **how,
        )
    return net


def _flight(row: Row) -> Row:
    names = ("key", "origin", "carrier", "status")
    status = row["status"]
    return {name: row[name] for name in names} | {
        "at": _ms(row["event_time"]),
        "delay": int(row["delay"] or 0),
        "status": status,
    }


def _nearest_root(square: Fraction) -> float:
    """Return the double nearest to a square root, to 30 digits and more."""
    shift = 10**60
    return float(Fraction(math.isqrt(int(square * shift * shift)), shift))


def _flight_truth(tuples: list[Row]) -> list[Row]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for t in tuples:
        for start in windows(t["at"], 3 * HOUR_MS, HOUR_MS):
            found[t["origin"], t["carrier"], start].append(t)
    rows = []
    for (origin, carrier, start), inside in found.items():
        delays = [t["delay"] for t in inside]
        inside.sort(key=lambda t: (t["at"], t["key"]))
        count, mean = len(inside), Fraction(sum(delays), len(inside))
        square = sum((d - mean) ** 2 for d in delays) / max(count - 1, 1)
        rows.append(
            {
                "origin": origin,
                "carrier": carrier,
                "window_start": start,
                "window_end": start + 3 * HOUR_MS,
                "flights": count,
                "late": sum(d > 15 for d in delays),
                "share": sum(t["status"] == "arrived" for t in inside) / count,
                "mean": float(mean),
                "best": min(delays),
                "worst": max(delays),
                "spread": _nearest_root(square) if count > 1 else None,
                "first": inside[0]["status"],
                "last": inside[-1]["key"],
            }
        )
    return rows


# -------------------------------------------------------------------------------- gdp


def gdp(
    ways: dict[str, dict[str, Any]] = WAYS, *, where: str = "", place: str | None = None
) -> Network:
    """Sums over four quarters, of every vintage ever published."""
    net = Network(f"gdp{where}", place=place)
    source = net.source(
        "gdp",
        topic=net.name,
        format="json",
        fields={
            "key": "string",
            "at": "timestamp-millis",
            "series": "string",
            "value": "decimal(18,6)",
        },
        identity=["key"],
        event_time="at",
        keep="100y",
    )
    for name, how in ways.items():
        source.aggregate(
            name,
            by=["series"],
            window=hopping("365d", every="92d"),
            keep="100y",
            fields={
                "year": "sum(value)",
                "quarters": "count(*)",
                "growth": "max(value) - min(value)",
            },
            **how,
        )
    return net


def _quarter(row: Row) -> Row:
    return {
        "key": row["key"],
        "at": _ms(row["event_time"]),
        "series": row["series"],
        "value": Decimal(row["value"] or row["old_value"]).quantize(Decimal("0.000001")),
    }


def _gdp_truth(tuples: list[Row]) -> list[Row]:
    found: dict[tuple[Any, ...], list[Decimal]] = defaultdict(list)
    for t in tuples:
        for start in windows(t["at"], 365 * DAY_MS, 92 * DAY_MS):
            found[t["series"], start].append(t["value"])
    return [
        {
            "series": series,
            "window_start": start,
            "window_end": start + 365 * DAY_MS,
            "year": sum(values),
            "quarters": len(values),
            "growth": max(values) - min(values),
        }
        for (series, start), values in found.items()
    ]


FEEDS = {
    "flights": Feed(FLIGHTS, flights, _flight, _flight_truth, 80_406),
    "gdp": Feed(GDP, gdp, _quarter, _gdp_truth, 34_414),
}

flights_network, gdp_network = flights(), gdp()  # as processes of their own load them
flights_on_spark = flights(ON_SPARK, where="_on_spark", place="spark")
gdp_on_spark = gdp(ON_SPARK, where="_on_spark", place="spark")
