"""A random tape of source records: all kinds of revisions, and many records that are refused."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

GARBAGE = b'{"op": "insert", "after": {"key"'
PLAIN = {
    "key": "string",
    "at": "timestamp-millis",
    "product": "string",
    "desk": "string?",
    "amount": "decimal(9,2)?",
    "size": "long?",
}
"""The fields of every tuple."""

WIDE = {
    "lots": "int",
    "rate": "double",
    "fee": "decimal(5,1)",
    "day": "date?",
    "flag": "boolean",
    "seen": "timestamp-millis",
}
"""The additional fields of a wide tuple."""

_DAY = date(2026, 1, 1)
_READ: dict[str, Callable[[Any], Any]] = {"rate": float, "day": date.fromisoformat}


def typed(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a tuple from JSON with the types that JSON does not have."""
    found = {name: _READ[name](plain[name]) for name in _READ if plain.get(name) is not None}
    return plain | found


OLD = 44
"""An insert of an identity whose tuples are older than this is refused or not, as `keep` says: one
whose tuple has expired is new. So the tape inserts no such identity, but another one."""


@dataclass(frozen=True)
class Line:
    """One source record: a line as a dict, None for no value, or undecodable bytes."""

    partition: int
    content: Any


class Tape:
    """Makes lines; an identity's lines are all in one source partition, or in any.

    Args:
        rng: The random generator.
        partitions: Partitions of the user's topic.
        identities: The number of keys in a partition.
        base: Added to all event times, in ms.
        unit: The unit of `now`, in ms.
        wide: Whether tuples have fields of every type.
        scattered: Whether a line may be in any partition, whatever its identity.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        partitions: int,
        identities: int = 5,
        base: int = 0,
        unit: int = 1,
        wide: bool = False,
        scattered: bool = False,
    ) -> None:
        self.rng, self.partitions, self.identities = rng, partitions, identities
        self.base, self.unit, self.wide, self.scattered = base, unit, wide, scattered
        self.told: dict[str, dict[str, Any]] = {}
        self.oldest: dict[str, int] = {}
        self.keys: dict[str, str] = {}
        self.undo: Line | None = None
        self.latest = 0

    def line(self, now: int, partition: int | None = None) -> Line:
        """Return a line with event times near `now`."""
        rng = self.rng
        self.latest = max(self.latest, now)
        if self.undo is not None:
            undo, self.undo = self.undo, None
            return undo
        if partition is None:
            partition = rng.randrange(self.partitions)
        key = self._key(partition)
        known, dice = self.told.get(key), rng.random()
        if dice < 0.03:
            return Line(partition, rng.choice([GARBAGE, b"[]", None]))
        if self._is_old(key) and not 0.36 <= dice < 0.55:
            self.keys[key.rstrip("'")] = key = f"{key}'"
            return self._tell(partition, "insert", self._tuple(key, now))
        if known is None or dice < 0.30:  # a second insert of the same identity is a replace
            return self._tell(partition, "insert", self._tuple(key, now))
        if dice < 0.36:
            return Line(partition, {"op": "insert", "after": known})  # producers send duplicates
        if dice < 0.55:  # also of deleted identities: refused
            return self._delete(partition, known)
        if dice < 0.60:
            other = self._key(partition)
            if self._is_old(other):
                return Line(partition, {"op": "insert", "after": known})
            return self._tell(partition, "replace", known | {"key": other}, known)
        if dice < 0.72:  # a change, undone by the next line
            self.undo = Line(self._other(partition), {"op": "replace", "after": known})
            return Line(partition, {"op": "replace", "after": self._changed(known, now)})
        return self._tell(partition, "replace", self._changed(known, now), known)

    def _key(self, partition: int) -> str:
        """Return an identity of the partition, or of a random one if lines are scattered."""
        name = f"{self._other(partition)}.{self.rng.randrange(self.identities)}"
        return self.keys.get(name, name)

    def _is_old(self, key: str) -> bool:
        """Whether the oldest tuple of an identity is older than `OLD`, by the latest line."""
        return self.oldest.get(key, self.latest) < self.latest - OLD

    def _other(self, partition: int) -> int:
        """Return the partition, or a random one if lines are scattered."""
        return self.rng.randrange(self.partitions) if self.scattered else partition

    def _tell(self, partition: int, op: str, after: Any, before: Any = None) -> Line:
        if after["at"] is not None:
            key, at = after["key"], (after["at"] - self.base) // self.unit
            self.told[key] = after
            self.oldest[key] = min(at, self.oldest.get(key, at))
        line = {"op": op, "after": after}
        if before and (before["key"] != after["key"] or self.rng.random() < 0.8):
            line["before"] = before
        return Line(partition, line)

    def _delete(self, partition: int, known: dict[str, Any]) -> Line:
        wrong = {"amount": Decimal("999.00")} if self.rng.random() < 0.2 else {}
        return Line(partition, {"op": "delete", "before": known | wrong})

    def _tuple(self, key: str, now: int) -> dict[str, Any]:
        rng = self.rng
        at = max(0, now + rng.choice([0, 1, 2, 3, -2, -6, -15, -25, -35, -60]))
        found = {
            "key": key,
            "at": None if rng.random() < 0.02 else self.base + self.unit * at,
            "product": rng.choice(["tea", "fig", "yam"]),
            "desk": rng.choice(["x", "x", None]),
            "amount": self._amount(),
            "size": self._size(),
        }
        return found | self._more() if self.wide else found

    def _more(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "lots": rng.choice([-3, 0, 1, 1, 2, 40]),
            "rate": rng.choice([-1.5, 0.0, 0.5, 0.5, 2.0, 1024.5]),
            "fee": Decimal(rng.choice([-5, 0, 5, 15, 15])).scaleb(-1),
            "day": rng.choice([None, *map(_DAY.__add__, map(timedelta, range(3)))]),
            "flag": rng.random() < 0.6,
            "seen": self.base + self.unit * rng.choice([-70, 0, 3, 3, 9]),
        }

    def _changed(self, known: dict[str, Any], now: int) -> dict[str, Any]:
        """Return a tuple with one field changed, or all, or none."""
        fresh = self._tuple(known["key"], now)
        names = ["amount", "size", "at", "product", "desk", "all", "none"]
        which = self.rng.choice([*names, *(WIDE if self.wide else ())])
        if which in ("all", "none"):
            return fresh if which == "all" else known
        return known | {which: fresh[which]}

    def _amount(self) -> Decimal | None:
        cents = self.rng.choice([None, -500, -100, 0, 25, 100, 100, 333, 900])
        return None if cents is None else Decimal(cents).scaleb(-2)

    def _size(self) -> int | None:
        return self.rng.choice([None, 0, 1, 2, 5, 7])
