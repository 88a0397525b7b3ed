"""Decides which records are committed: those that the report of their task covers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from errata.demo.audit.decoding import Schemas
from errata.demo.audit.log import AuditError, Entry

ENDED = 2**62
"""The watermark of a source that has ended."""


@dataclass(frozen=True)
class Revision:
    """A revision of an arc, and its position."""

    partition: int
    offset: int
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    epoch: int

    @property
    def told(self) -> dict[str, Any]:
        """The side that has the tuple's identity."""
        return self.after or self.before or {}

    @property
    def order(self) -> tuple[int, bool, int]:
        """The order of folding: by epoch, with deletes first in an epoch."""
        return self.epoch, self.op != "delete", self.offset


class Reports:
    """The newest report of each task.

    Args:
        entries: The records of the progress topic.
        schemas: The schemas that decode them.
    """

    def __init__(self, entries: Iterable[Entry], schemas: Schemas) -> None:
        self.newest: dict[str, dict[str, Any]] = {}
        for entry in entries:
            if entry.value is None:
                continue
            report = schemas.decode(entry.value)
            known = self.newest.get(report["task"])
            if known is None or _age(report) >= _age(known):
                self.newest[report["task"]] = report

    def covers(self, record: dict[str, Any]) -> bool:
        """Return whether the (attempt, epoch) of a record was committed by its task."""
        report = self.newest.get(record["task"], {"committed": []})
        last = {c["attempt"]: c["epoch"] for c in report["committed"]}
        return bool(record["epoch"] <= last.get(record["attempt"], -1))

    def believed(
        self, entries: Iterable[Entry], schemas: Schemas
    ) -> Iterator[tuple[Entry, dict[str, Any]]]:
        """Yield the committed records, decoded; exact copies count once."""
        seen = set()
        for entry in entries:
            if entry.value is None:
                continue  # a tombstone: a delete comes before it
            record = schemas.decode(entry.value)
            copy = (entry.partition, entry.key, entry.value)
            if self.covers(record) and (entry.key is None or copy not in seen):
                seen.add(copy)
                yield entry, record

    def demand_end(self, tasks: Iterable[str]) -> None:
        """Check that these tasks have seen the end of the source.

        Raises:
            AuditError: If one has not: the results are not complete yet.
        """
        late = [t for t in tasks if self.newest.get(t, {"watermark": -1})["watermark"] < ENDED]
        if late:
            raise AuditError(
                f"the end of the source has not been processed by {', '.join(late)}; declare it "
                "with `errata end`, and wait"
            )


def _age(report: dict[str, Any]) -> tuple[int, int]:
    return report["attempt"], report["done"]
