"""The audit: compares the content of the topics with results recomputed from the user's topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.demo.audit import arcs, expected
from errata.demo.audit.arcs import Revision
from errata.demo.audit.expected import TOO_OLD, UNKNOWN, Place
from errata.demo.audit.records import (
    SCHEMAS,
    Entry,
    Kafka,
    Logs,
    Reports,
    Schemas,
    read,
    schemas_of_registry,
    schemas_of_topic,
)

SOURCE, NETWORK = "swaps.credits", "tape"
TRADES, UPSTREAM, DOWNSTREAM = "tape.trades", "tape.totals_upstream", "tape.totals_downstream"
BARS = "tape.bars"
_DEAD_LETTERS, _PROGRESS = f"{NETWORK}.dead-letters", f"{NETWORK}.progress"
TOPICS = (SOURCE, _PROGRESS, _DEAD_LETTERS, TRADES, UPSTREAM, DOWNSTREAM)


@dataclass(frozen=True)
class Verdict:
    """The result of the audit.

    Args:
        results: The expected number of results, in each mode.
        bars: The expected number of bars, which Spark computes.
        revisions: The number of emitted revisions, by arc.
        surviving: The number of surviving trades.
        refused: By place, the reason, op and identity of refused records.
        differences: Where a topic's content differs from the expected one.
        mode_differences: Where the two modes did not emit the same revision.
    """

    results: int
    bars: int
    revisions: dict[str, int]
    surviving: int
    refused: dict[Place, tuple[str, str, str]]
    differences: list[str]
    mode_differences: list[str]

    @property
    def clean(self) -> bool:
        """Whether nothing differs."""
        return not self.differences and not self.mode_differences

    def lines(self) -> list[str]:
        """Return the verdict as lines of text."""
        aged = [f"  {op} of {key}" for reason, op, key in self._refused_for(TOO_OLD)]
        return [
            f"{self.surviving} trades survive; {self.results} results recomputed, twice emitted"
            + (f", and {self.bars} bars on Spark" if self.bars else ""),
            f"{len(self._refused_for(UNKNOWN))} revisions of unknown trades refused",
            f"{len(aged)} refused for age",
            *aged,
            f"modes: {len(self.mode_differences)} differences",
            *(f"  {line}" for line in self.mode_differences),
            f"audit: {len(self.differences)} differences",
            *(f"  {line}" for line in self.differences),
        ]

    def _refused_for(self, reason: str) -> list[tuple[str, str, str]]:
        return [refusal for refusal in self.refused.values() if refusal[0] == reason]


def audit(kafka: Kafka, *, spark: bool = False, registry: str = "") -> Verdict:
    """Read the demo's topics and check them.

    Args:
        kafka: librdkafka settings of the cluster.
        spark: Whether there are bars.
        registry: URL of the schema registry; empty if a topic keeps the schemas.

    Raises:
        AuditError: If a topic is missing, or the end of the source is not processed yet.
    """
    logs = read(kafka, (*TOPICS, *([BARS] if spark else []), *([] if registry else [SCHEMAS])))
    return judge(
        logs, schemas_of_registry(registry) if registry else schemas_of_topic(logs.pop(SCHEMAS))
    )


def judge(logs: Logs, schemas: Schemas, *, partitions: int = 4) -> Verdict:
    """Return the verdict on the content of the demo's topics."""
    reports = Reports(logs[_PROGRESS], schemas)
    has_bars = BARS in logs
    scopes = ("upstream", "downstream", *(["bars"] if has_bars else []))
    reports.require_end(f"{scope}.{p}" for scope in scopes for p in range(partitions))
    dead_letters = [record for _, record in reports.committed(logs[_DEAD_LETTERS], schemas)]
    tape = expected.fold(logs[SOURCE], dead_letters, schemas)
    differences = list(tape.differences)
    identities: dict[str, Sequence[str]] = {
        TRADES: ("key",),
        UPSTREAM: expected.IDENTITY,
        DOWNSTREAM: expected.IDENTITY,
        **({BARS: expected.IDENTITY} if has_bars else {}),
    }
    revisions = {arc: _revisions(logs[arc], reports, schemas) for arc in identities}
    totals = expected.recompute(tape.alive.values())
    bars = expected.recompute_bars(tape.alive.values()) if has_bars else {}
    trades = {(key,): trade for key, trade in tape.alive.items()}
    expected_content = {TRADES: trades, UPSTREAM: totals, DOWNSTREAM: totals, BARS: bars}
    for arc, identity in identities.items():
        differences += arcs.chain_faults(arc, revisions[arc], identity)
        content = arcs.fold(revisions[arc], identity)
        differences += arcs.differences(arc, content, expected_content[arc])
    modes = arcs.mode_differences(revisions[UPSTREAM], revisions[DOWNSTREAM], expected.IDENTITY)
    return Verdict(
        results=len(totals),
        bars=len(bars),
        revisions={arc: len(emitted) for arc, emitted in revisions.items()},
        surviving=len(tape.alive),
        refused=tape.refused,
        differences=differences,
        mode_differences=list(modes),
    )


def _revisions(entries: list[Entry], reports: Reports, schemas: Schemas) -> list[Revision]:
    return [
        Revision(e.partition, e.offset, r["op"], r["before"], r["after"], r["epoch"])
        for e, r in reports.committed(entries, schemas)
    ]
