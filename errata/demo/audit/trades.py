"""Which trades survive: the user's topic, folded by identity in the order of its offsets."""

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
    """What the user's topic comes to.

    Args:
        alive: The surviving trades by identity.
        refused: By place (partition, offset) the reason and the identity, as the stranger sees it.
        differences: What the dead letters say otherwise.
    """

    alive: dict[str, Trade] = field(default_factory=dict)
    refused: dict[Place, tuple[str, str, str]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def fold(entries: Iterable[Entry], letters: Iterable[dict[str, Any]], schemas: Schemas) -> Tape:
    """Return the surviving trades, and hold the dead letters against what had to be refused.

    What is refused for age depends on how far the tape had been read, so there the letters are
    believed, as long as the record is older than what must be kept.
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
    """Return op, identity and trade of a record, and why it must be refused, if it must."""
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
