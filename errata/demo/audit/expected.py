"""Computes the expected results: which trades survive, and what their windows and days hold.

The user's topic is folded by identity in the order of offsets; the results are recomputed from the
surviving trades in exact arithmetic. The types are Spark's: a notional with 2 decimals times an
index factor with 9 has 11 decimals; its average has 15 and is rounded half up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from errata.demo.audit.records import Entry, Schemas

UNDECODABLE, UNKNOWN, TOO_OLD = "undecodable", "unknown identity", "older than keep"
KEEP = timedelta(days=3650)
SIZE, SLIDE, DAY = timedelta(minutes=30), timedelta(minutes=20), timedelta(days=1)
GROUP = ("product", "currency")
IDENTITY = (*GROUP, "window_start")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCALE, _AVERAGE_DIGITS = 11, 4
_EXACT = Context(prec=100)

Trade = dict[str, Any]
Place = tuple[int, int]
Results = dict[tuple[Any, ...], dict[str, Any]]


@dataclass
class Tape:
    """The result of folding the user's topic.

    Args:
        alive: The surviving trades by identity.
        refused: By place (partition, offset) the reason, op and identity, as the audit determines
            them.
        differences: Where the dead letters disagree.
    """

    alive: dict[str, Trade] = field(default_factory=dict)
    refused: dict[Place, tuple[str, str, str]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def fold(
    entries: Iterable[Entry], dead_letters: Iterable[dict[str, Any]], schemas: Schemas
) -> Tape:
    """Return the surviving trades, and compare the dead letters with the expected refusals.

    A refusal for age depends on how far the tape had been read. The audit accepts such a dead
    letter if the record is older than what must be kept.
    """
    by_place: dict[Place, list[dict[str, Any]]] = defaultdict(list)
    for dead_letter in dead_letters:
        by_place[dead_letter["partition"], dead_letter["offset"]].append(dead_letter)
    tape, newest = Tape(), defaultdict[int, datetime](lambda: datetime.min.replace(tzinfo=UTC))
    for entry in entries:
        place = (entry.partition, entry.offset)
        matches = by_place.pop(place, [])
        reasons = [dead_letter["reason"] for dead_letter in matches]
        op, key, trade, reason = _judge(entry, tape.alive, schemas)
        if reasons == [TOO_OLD] and not reason and newest[place[0]] - trade["at"] > KEEP:
            reason = TOO_OLD
        where = f"{op} of {key} at partition {place[0]}, offset {place[1]}"
        if reasons != ([reason] if reason else []):
            need = f"one dead letter '{reason}'" if reason else "no dead letter"
            tape.differences.append(f"{where} needs {need}, found {reasons or 'none'}")
        elif reason and matches[0]["value"] != entry.value:
            tape.differences.append(f"{where}: its dead letter holds other bytes")
        if trade:
            newest[place[0]] = max(newest[place[0]], trade["at"])
        if reason:
            tape.refused[place] = (reason, op, key)
        elif op == "delete":
            del tape.alive[key]
        else:
            tape.alive[key] = trade
    for place in by_place:
        tape.differences.append(f"a dead letter names {place}, where the topic has no record")
    return tape


def _judge(
    entry: Entry, alive: dict[str, Trade], schemas: Schemas
) -> tuple[str, str, Trade, str | None]:
    """Return op, identity and trade of a record, and the reason if it must be refused."""
    try:
        record = schemas.decode(entry.value or b"")
    except ValueError:
        return "?", "?", {}, UNDECODABLE
    op = record["op"]
    trade = record["before"] if op == "delete" else record["after"]
    if trade is None:
        return op, "?", {}, UNDECODABLE
    unknown = op != "insert" and trade["key"] not in alive
    return op, trade["key"], trade, UNKNOWN if unknown else None


def recompute(trades: Iterable[dict[str, Any]]) -> Results:
    """Return the result of every window that holds a trade, by identity."""
    held: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for trade in trades:
        unscaled = int(_EXACT.scaleb(_at_risk(trade), _SCALE))
        for start in windows(trade["at"]):
            held[*(trade[name] for name in GROUP), start].append(unscaled)
    return {key: _result(key, content) for key, content in held.items()}


class ApproximateFloat(float):
    """A double that equals doubles which differ only in the last digits."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether another number is equal within a relative tolerance of 1e-12."""
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-12)


def recompute_bars(trades: Iterable[dict[str, Any]]) -> Results:
    """Return the bar of every day that has a trade, by identity."""
    held: dict[tuple[Any, ...], list[tuple[datetime, str, Decimal]]] = defaultdict(list)
    for trade in trades:
        start = _EPOCH + (trade["at"] - _EPOCH) // DAY * DAY
        entry = trade["at"], trade["key"], _at_risk(trade)
        held[*(trade[name] for name in GROUP), start].append(entry)
    return {key: _bar(key, sorted(content)) for key, content in held.items()}


def _bar(key: tuple[Any, ...], content: list[tuple[datetime, str, Decimal]]) -> dict[str, Any]:
    values = sorted(Fraction(value) for _, _, value in content)
    place = Fraction(99, 100) * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    between = values[low] + (place - low) * (values[high] - values[low])
    amounts = [value for _, _, value in content]
    return {
        **dict(zip(IDENTITY, key, strict=True)),
        "window_end": key[-1] + DAY,
        "open": amounts[0],
        "high": max(amounts),
        "low": min(amounts),
        "close": amounts[-1],
        "p99": ApproximateFloat(between),
        "trades": len(content),
    }


def _at_risk(trade: dict[str, Any]) -> Decimal:
    factor = trade["index_factor"]
    return _EXACT.multiply(trade["notional"], Decimal(1) if factor is None else factor)


def windows(at: datetime) -> Iterable[datetime]:
    """Return the starts of the windows that hold a time, newest first.

    Example:
        >>> [f"{start:%H:%M}" for start in windows(datetime(2026, 7, 15, 2, 0, tzinfo=UTC))]
        ['02:00', '01:40']
    """
    start = _EPOCH + (at - _EPOCH) // SLIDE * SLIDE
    while start + SIZE > at:
        yield start
        start -= SLIDE


def _result(key: tuple[Any, ...], content: list[int]) -> dict[str, Any]:
    total, count = sum(content), len(content)
    shifted = total * 10**_AVERAGE_DIGITS
    rounded = (2 * abs(shifted) + count) // (2 * count) * (1 if total >= 0 else -1)
    return {
        **dict(zip(IDENTITY, key, strict=True)),
        "window_end": key[-1] + SIZE,
        "traded": _EXACT.scaleb(Decimal(total), -_SCALE),
        "average": _EXACT.scaleb(Decimal(rounded), -_SCALE - _AVERAGE_DIGITS),
        "trades": count,
        "largest": _EXACT.scaleb(Decimal(max(content)), -_SCALE),
    }
