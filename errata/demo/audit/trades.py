"""Computes which trades survive: folds the user's topic by identity in the order of offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from errata.demo.audit.decoding import Schemas
from errata.demo.audit.log import Entry

UNDECODABLE, UNKNOWN, TOO_OLD = "undecodable", "unknown identity", "older than keep"
KEEP = timedelta(days=3650)

Trade = dict[str, Any]
Place = tuple[int, int]


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


def fold(entries: Iterable[Entry], letters: Iterable[dict[str, Any]], schemas: Schemas) -> Tape:
    """Return the surviving trades, and compare the dead letters with the expected refusals.

    A refusal for age depends on how far the tape had been read. The audit accepts such a dead
    letter if the record is older than what must be kept.
    """
    told: dict[Place, list[dict[str, Any]]] = defaultdict(list)
    for letter in letters:
        told[letter["partition"], letter["offset"]].append(letter)
    tape, newest = Tape(), defaultdict[int, datetime](lambda: datetime.min.replace(tzinfo=UTC))
    for entry in entries:
        place = (entry.partition, entry.offset)
        found = told.pop(place, [])
        reasons = [letter["reason"] for letter in found]
        op, key, trade, reason = _judge(entry, tape.alive, schemas)
        if reasons == [TOO_OLD] and not reason and newest[place[0]] - trade["at"] > KEEP:
            reason = TOO_OLD
        where = f"{op} of {key} at partition {place[0]}, offset {place[1]}"
        if reasons != ([reason] if reason else []):
            need = f"one dead letter '{reason}'" if reason else "no dead letter"
            tape.differences.append(f"{where} needs {need}, found {reasons or 'none'}")
        elif reason and found[0]["value"] != entry.value:
            tape.differences.append(f"{where}: its dead letter holds other bytes")
        if trade:
            newest[place[0]] = max(newest[place[0]], trade["at"])
        if reason:
            tape.refused[place] = (reason, op, key)
        elif op == "delete":
            del tape.alive[key]
        else:
            tape.alive[key] = trade
    for place in told:
        tape.differences.append(f"a dead letter speaks of {place}, where the topic has no record")
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
