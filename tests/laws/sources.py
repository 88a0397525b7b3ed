"""Computes what a source's records make of its arc, and which are refused, in plain Python."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.laws.oracle import NEVER, Tuple


@dataclass
class Intake:
    """Computes one source partition's share of the arc.

    Args:
        keep: Event times further behind the newest one (less lateness) are refused.
        lateness: How far the watermark is behind.
        reach: Tuples this much further behind count as not held any more; None: they are held for
            ever. Nothing inserts their identities again.
    """

    keep: int
    lateness: int
    reach: int | None = None
    held: dict[str, Tuple] = field(default_factory=dict)
    newest: int = NEVER
    refused: dict[int, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def take(self, records: Iterable[tuple[int, Any]]) -> None:
        """Take one epoch's (offset, record); a record is a line as a dict, or any other value."""
        oldest = self.newest - self.keep if self.newest > NEVER else NEVER
        at_first = {
            key: t for key, t in self.held.items() if not expired(t, self.newest, self.reach)
        }
        self.gone = self.held.keys() - at_first.keys()
        newest = NEVER
        for offset, line in records:
            reason = _fault(line) or self._judge(line, at_first, oldest)
            if reason is not None:
                self.refused[offset] = reason
                continue
            before, after = line.get("before"), line.get("after")
            if before is not None and (after is None or before["key"] != after["key"]):
                self.held.pop(before["key"], None)
            if after is not None:
                self.held[after["key"]] = after
                newest = max(newest, after["at"] - self.lateness)
        self.newest = max(self.newest, newest)

    def _judge(self, line: Any, at_first: dict[str, Tuple], oldest: int) -> str | None:
        before, after = line.get("before"), line.get("after")
        keys = {t["key"] for t in (before, after) if t is not None}
        old = [at_first[key]["at"] for key in keys if key in at_first]
        if after is not None:
            old.append(after["at"])
        if line["op"] != "insert" and before is not None and before["key"] not in at_first:
            old.append(before.get("at", oldest))  # a tombstone has only the key
        if min(old, default=oldest) < oldest:
            return "older than keep"
        moves = len(keys) == 2
        held = keys & self.held.keys() - self.gone
        if line["op"] != "insert" and not moves and not held:
            return "unknown identity"
        return None


@dataclass
class Passing(Intake):
    """Collects what one partition of a rekeyed source passes on: all readable records, unchecked.

    `passed` has (offset, line, newest event time before) of the last epoch.
    """

    passed: list[tuple[int, Any, int]] = field(default_factory=list)

    def take(self, records: Iterable[tuple[int, Any]]) -> None:
        known, newest = list(records), self.newest
        super().take(known)
        self.passed = [(at, line, newest) for at, line in known if at not in self.refused]

    def _judge(self, line: Any, at_first: dict[str, Tuple], oldest: int) -> str | None:
        return None


@dataclass
class Owners:
    """Computes the arc of a rekeyed source from the records of all partitions.

    A record that changes an identity is a delete and an insert, which are checked separately.

    Args:
        keep: Event times that are further behind the newest one are refused.
        owner: Returns the number of the task that owns a key.
        reach: As of `Intake`, behind what any partition had read before.
    """

    keep: int
    owner: Callable[[str], int]
    reach: int | None = None
    held: dict[str, Tuple] = field(default_factory=dict)
    refused: set[tuple[int, int, int, str]] = field(default_factory=set)

    def take(self, records: Iterable[tuple[int, int, Any, int]]) -> None:
        """Take one epoch's (partition, offset, line, newest); `refused` starts with the owner."""
        records, known = list(records), dict[str, int]()
        for _, _, line, newest in records:
            for t in filter(None, (line.get("before"), line.get("after"))):
                known[t["key"]] = min(newest, known.get(t["key"], newest))
        at_first = {
            key: t
            for key, t in self.held.items()
            if not expired(t, known.get(key, NEVER), self.reach)
        }
        gone = self.held.keys() - at_first.keys()
        for partition, offset, line, newest in sorted(records, key=lambda r: r[:2]):
            before, after = line.get("before"), line.get("after")
            halves = [((after or before)["key"], after)]
            if before and after and before["key"] != after["key"]:
                halves.insert(0, (before["key"], None))
            for key, now in halves:
                there = [t["at"] for t in (at_first.get(key), now) if t is not None]
                oldest = newest - self.keep if newest > NEVER else NEVER
                is_stated = line["op"] != "insert" and before and before["key"] == key
                if is_stated and key not in at_first:
                    there.append(before.get("at", oldest))
                if min(there, default=oldest) < oldest:
                    self.refused.add((self.owner(key), partition, offset, "older than keep"))
                elif (
                    line["op"] != "insert"
                    and len(halves) == 1
                    and (key not in self.held or key in gone)
                ):
                    self.refused.add((self.owner(key), partition, offset, "unknown identity"))
                else:
                    self.held.pop(key, None)
                    self.held |= {} if now is None else {key: now}


def expired(t: Tuple, newest: int, reach: int | None) -> bool:
    """Whether a tuple is so old that it does not count as held any more."""
    return reach is not None and newest > NEVER and t["at"] < newest - reach


def _fault(line: Any) -> str | None:
    if not isinstance(line, dict):
        return "undecodable"
    if line["op"] != "delete" and line["after"]["at"] is None:
        return "event time"
    return None
