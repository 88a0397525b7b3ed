"""The dead letters of a batch: each refused record, verbatim, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import polars as pl

from errata.processors.envelopes.checks import Refusal
from errata.processors.tasks.shared import Shared
from errata.processors.wire import dead_letter
from errata.processors.wire.count_key import DEAD_LETTERS, CountKey
from errata.processors.wire.dead_letter import DeadLetter
from errata.processors.wire.report import Report
from errata.schemas import framing
from errata.topics import names


def letters(
    shared: Shared,
    refused: Sequence[Refusal],
    originals: pl.DataFrame,
    *,
    topic: str,
    report: Report,
    epoch: int,
) -> dict[str, list[tuple[bytes | None, bytes]]]:
    """Return the dead letters of refused records, in the form that `Task.commit` takes.

    Args:
        shared: Names the network and holds the registry.
        refused: The refusals; each `row` is one of `originals`.
        originals: The records of the batch (`originals`).
        topic: The user's topic that they come from.
        report: Report of the task that refuses them.
        epoch: The epoch in which it refuses them.
    """
    return posted(
        shared,
        [
            DeadLetter(
                task=report.task,
                attempt=report.attempt,
                epoch=epoch,
                reason=refusal.reason,
                detail=refusal.detail,
                topic=topic,
                **originals.row(refusal.row, named=True),
            )
            for refusal in sorted(refused, key=lambda r: r.row)
        ],
    )


Posted: TypeAlias = dict[str, list[tuple[bytes | None, bytes]]]
"""Keys and values by topic, in the form that `Task.commit` takes."""


def posted(shared: Shared, found: Sequence[DeadLetter]) -> Posted:
    """Encode dead letters, in the form that `Task.commit` takes."""
    if not found:
        return {}
    told_in = names.dead_letters_topic(shared.plan.network)
    schema_id = shared.registry.register(f"{told_in}-value", dead_letter.SCHEMA)
    bodies = [dead_letter.encode(letter) for letter in found]
    return {told_in: [(None, value) for value in framing.frame(bodies, schema_id)]}


def tally(refused: Sequence[Refusal]) -> Counter[str]:
    """Return the number of refused records, in total and by reason, for a report's counts."""
    found = Counter(str(CountKey.of_reason(refusal.reason)) for refusal in refused)
    found[DEAD_LETTERS] = len(refused)
    return found
