"""The dead letters of a task: refused records of a source, and tuples that boxes refuse.

An ingest task refuses records; each becomes a dead letter, verbatim, with the reason. A tuple that
a box refuses becomes a dead letter too, or stops the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec, Meta
from errata.processors.boxes.base import Refused
from errata.processors.envelopes.batch import LONGEST_VALUE, Refusal
from errata.processors.expressions.opaque import to_plain
from errata.processors.plan.plan import Plan
from errata.processors.tasks.attempt import RecordsByTopic
from errata.processors.tasks.scope_run import BoxError, EpochResult
from errata.processors.tasks.shared import Shared
from errata.processors.wire import dead_letter
from errata.processors.wire.dead_letter import NO_RECORD, DeadLetter
from errata.processors.wire.report import DEAD_LETTERS, INTERVAL_MS, CountKey, Report
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.topics import names
from errata.topics.registry import Registry


def dead_letters_of_records(
    shared: Shared,
    refused: Sequence[Refusal],
    originals: pl.DataFrame,
    *,
    topic: str,
    report: Report,
    epoch: int,
) -> RecordsByTopic:
    """Return the dead letters of refused records, in the form that `Task.commit` takes.

    Args:
        shared: Names the network and holds the registry.
        refused: The refusals; each `row` is one of `originals`.
        originals: The records of the batch (`originals`).
        topic: The user's topic that they come from.
        report: Report of the task that refuses them.
        epoch: The epoch in which it refuses them.
    """
    return dead_letter_records(
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


class Schemas(Protocol):
    """A plan and the registry of its schemas."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def registry(self) -> Registry:
        """The registry."""


def dead_letter_records(schemas: Schemas, dead_letters: Sequence[DeadLetter]) -> RecordsByTopic:
    """Encode dead letters, in the form that `Task.commit` takes."""
    if not dead_letters:
        return {}
    topic = names.dead_letters_topic(schemas.plan.network)
    schema_id = schemas.registry.register(f"{topic}-value", dead_letter.SCHEMA)
    bodies = [dead_letter.encode(letter) for letter in dead_letters]
    return {topic: [(None, value) for value in framing.frame(bodies, schema_id)]}


def tally_refusals(refused: Sequence[Refusal]) -> Counter[str]:
    """Return the number of refused records, in total and by reason, for a report's counts."""
    counts = Counter(str(CountKey.of_reason(refusal.reason)) for refusal in refused)
    counts[DEAD_LETTERS] = len(refused)
    return counts


_LONGEST_TEXT = 1_000
"""Most characters of a reason, and of a tuple, in a message."""

_REMEDY = 'correct it, keep such tuples from it, or set on_error = "dead-letter" to skip them'


def fail_on_refused(plan: Plan, result: EpochResult) -> None:
    """Fail on the first refused tuple; called with ``on_error = "stop"``.

    Raises:
        BoxError: If a tuple is refused.
    """
    for box, refused in result.refused.items():
        for refusal in refused:
            failure = next(_texts(plan, box, refusal))
            raise BoxError(box, result.memory.done, failure, remedy=_REMEDY)


class Codecs(Protocol):
    """A plan and the codecs of its arcs."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc."""


def dead_letters_of_tuples(
    codecs: Codecs, results: Sequence[EpochResult], *, partition: int, report: Report
) -> list[DeadLetter]:
    """Return the dead letters of some epochs.

    Args:
        codecs: The plan and the codecs of its arcs.
        results: Results of the epochs.
        partition: Partition of the task.
        report: Report of the task.
    """
    return [
        DeadLetter(
            task=report.task,
            attempt=report.attempt,
            epoch=result.memory.done,
            reason=refused.kind,
            detail=f"box {box!r}, epoch {result.memory.done}: {text}",
            topic=codecs.plan.deployment.topic(refused.arc),
            partition=partition,
            offset=NO_RECORD,
            time_ms=result.memory.done * INTERVAL_MS,
            key=key,
            value=value,
        )
        for result in results
        for box, several in result.refused.items()
        for refused in several
        for text, key, value in zip(
            _texts(codecs.plan, box, refused),
            *_records(
                codecs.codec(refused.arc),
                refused.tuples,
                Meta(report.task, report.attempt, result.memory.done),
            ),
            strict=True,
        )
    ]


def tally_dead_letters(dead_letters: Sequence[DeadLetter]) -> Mapping[str, int]:
    """Return the number of dead letters, in total and by reason, for a report's counts."""
    counts = Counter(str(CountKey.of_reason(letter.reason)) for letter in dead_letters)
    return counts + Counter({DEAD_LETTERS: len(dead_letters)})


def _texts(plan: Plan, box: str, refused: Refused) -> Iterator[str]:
    """Yield the reason and the tuple of each refusal, as text."""
    arc, what = plan.topology.arcs[refused.arc], "result" if refused.arc == box else "tuple"
    names = [name for name in arc.visible if name in refused.tuples.columns]
    columns = [to_plain(refused.tuples[name], arc.fields[name]) for name in names]
    for number, reason in enumerate(refused.reasons):
        row = {name: column[number] for name, column in zip(names, columns, strict=True)}
        yield f"{_short(reason)}; {what} {_short(str(row))} of arc {arc.name!r}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


def _records(
    codec: ArcCodec, tuples: pl.DataFrame, meta: Meta
) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
    """Return the keys and values of tuples as records of their arc; None where fields are missing.

    A value above `LONGEST_VALUE` bytes is None too.
    """
    if not set(codec.arc.identity) <= set(tuples.columns):  # an arc within a loop
        return [None] * tuples.height, [None] * tuples.height
    keys = codec.keys(tuples.select(codec.arc.identity))
    if not set(codec.arc.fields) <= set(tuples.columns):
        return keys, [None] * len(keys)
    whole = pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True)
    values = codec.values(frames.between(tuples, ~whole, tuples, whole), meta)
    return keys, [value if len(value) <= LONGEST_VALUE else None for value in values]
