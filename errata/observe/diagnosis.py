"""Finds what is wrong in a running network.

Which task holds a frontier or a watermark back, and since when; whose reports are invalid, or
missing although input waits; and which filters never let a tuple pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Source, ingest_scope
from errata.processors.reports.frontiers import combined
from errata.processors.reports.progress_view import View
from errata.processors.tasks.reading_again import TOLD_S
from errata.processors.wire.report import (
    FOR_REGISTRY,
    FOR_ROOM,
    FOREIGN,
    FOREVER,
    IDLE,
    INTERVAL_MS,
    NEVER,
    PENDING,
    CountKey,
)
from errata.processors.wire.task_id import TaskId
from errata.topics import names
from errata.topics.cluster import TopicPartition
from errata.topics.registry import Registry, SchemaRegistry

STALE_MS = 1_500
"""A task with work to do that has not reported for this long is busy, or not running."""
LONGEST_READING_MS = int(3 * TOLD_S * 1000)
"""As `STALE_MS`, of a task that reads topics again: it reports how far it has come."""
SLOW_MS = 5_000
"""A partition holds its peers back if its watermark stands this long while theirs rise."""
NAMED_MS = 10_000
"""An invalid report is listed for this time, and until its task sends a valid one."""
LOST = (
    "the brokers have lost records that it had committed; it writes them again, and the tasks that "
    "read them wait for that (its log names partitions and offsets)"
)
LEADERLESS = (
    "partition {} has no leader: whoever reads or writes it waits until the brokers that have its "
    "replicas are back"
)
WAITING = {
    FOR_ROOM: "it reads no input until the disk of its process has room",
    FOR_REGISTRY: "it reads no input until the schema registry answers",
}
SWEEPER_WAITING = "it answers no replay requests until the disk of its process has room"
FEWEST_REFUSED = 10
"""A source that refuses most of its records is listed from this number of refused ones on."""


@dataclass(frozen=True)
class Hold:
    """A partition that holds the watermark of its source below that of its peers.

    Args:
        source: The source.
        task: The ingest task of the partition.
        watermark_ms: Its watermark; None if the partition never had a record.
        since_ms: When it last rose, taken from the number of its epoch; None if it never has.
        peers_ms: The highest watermark among its peers; None if they have ended.
    """

    source: str
    task: str
    watermark_ms: int | None
    since_ms: int | None
    peers_ms: int | None

    def __str__(self) -> str:
        return f"{self.task} holds the watermark of {self.source!r}"


def holder(view: View, task: str) -> str:
    """Return the task that holds a frontier back: the task itself, or one that it waits for."""
    task_id = TaskId.parse(task)
    if (scope := str(task_id.scope)) in view.plan.topology.scopes:
        frontier = view.frontier(task)
        for arc, number in view.plan.placement.read_by(scope, task_id.partition):
            for writer in view.writers(arc, number):
                if view.frontier(writer) <= frontier:
                    return holder(view, writer)
    return task


def watermark_holds(view: View) -> Iterator[Hold]:
    """Yield the partitions that hold a source's watermark well behind that of their peers."""
    for source in view.plan.topology.sources:
        tasks = view.tasks(ingest_scope(source))
        last = {task: last_pair(view, task) for task in tasks}
        known = [wm for _, wm in last.values() if wm != IDLE]
        lowest, highest = combined(known), max(known, default=NEVER)
        newest = max(view.of(task).done for task in tasks)
        for task, (epoch, watermark) in last.items():
            unchanged_ms = (newest - epoch) * INTERVAL_MS
            if watermark == lowest < highest and (watermark == NEVER or unchanged_ms > SLOW_MS):
                yield Hold(
                    source,
                    task,
                    moment(watermark),
                    epoch * INTERVAL_MS if watermark != NEVER else None,
                    moment(highest),
                )


def last_pair(view: View, task: str) -> tuple[int, int]:
    """Return the epoch and value of an ingest task's last watermark; -1 and NEVER before it."""
    pairs = view.of(task).watermarks
    return pairs[-1] if pairs else (-1, NEVER)


def moment(watermark: int) -> int | None:
    """Return a watermark as a time; None if it is not a time."""
    return watermark if NEVER < watermark < FOREVER else None


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a task's reports, or with a topic.

    Args:
        task: The task, as the key of its report names it; or the topic.
        reason: What is wrong.
        since_ms: When the report was written, or when the task last reported; None if never.
    """

    task: str
    reason: str
    since_ms: int | None


def complaints(
    view: View,
    silent: Mapping[str, int | None],
    *,
    now_ms: int,
    leaderless: Collection[TopicPartition] = (),
    schemas: Registry | None = None,
) -> list[Complaint]:
    """Return what is wrong with the reports of tasks, and with what they read and write.

    Args:
        view: The reports that have been read.
        silent: Tasks that hold themselves back, and when each last reported.
        now_ms: The current time.
        leaderless: Partitions without a leader.
        schemas: The registry of the network's schemas, read to its end.
    """
    listed = [
        Complaint(at.topic, LEADERLESS.format(at.partition), None) for at in sorted(leaderless)
    ]
    listed += [
        Complaint(task, f"its report is invalid: {invalid.reason}", invalid.time_ms)
        for task, invalid in sorted(view.invalid.items())
        if now_ms - invalid.time_ms < NAMED_MS
        or (task in view.ignored and view.validator.knows(task))
    ]
    listed += [
        Complaint(view.plans.topic, record.reason, record.time_ms)
        for _, record in sorted(view.unreadable.items())
    ]
    listed += [
        Complaint(task, LOST, None)
        for task, report in sorted(view.reports.items())
        if report.rebuilt == PENDING
    ]
    listed += skipped_schemas(schemas)
    listed += foreign_records(view)
    listed += watermarks_ahead(view, now_ms=now_ms)
    listed += most_refused(view)
    listed += times_in_seconds(view)
    waiting = {task: report.waits for task, report in view.reports.items() if report.waits}
    for task, what in sorted(waiting.items()):
        told = WAITING.get(what, f"it waits ({what})")
        if is_sweeper(task) and what == FOR_ROOM:
            told = SWEEPER_WAITING
        listed.append(Complaint(task, told, None))
    for task, since_ms in sorted(silent.items()):
        if task in waiting:
            continue
        longest_ms = STALE_MS if view.of(task).again is None else LONGEST_READING_MS
        if since_ms is None:
            listed.append(Complaint(task, "it has something to do and has never reported", None))
        elif now_ms - since_ms > longest_ms:
            reason = f"it has something to do and has not reported for {now_ms - since_ms} ms"
            listed.append(Complaint(task, reason, since_ms))
    return listed


def is_sweeper(task: str) -> bool:
    """Whether a report's task is a sweeper."""
    known = TaskId.parse_or_none(task)
    return known is not None and known.scope.is_sweeper


def skipped_schemas(schemas: Registry | None) -> Iterator[Complaint]:
    """Yield a complaint about the records that the topic of the schemas should not have."""
    if isinstance(schemas, SchemaRegistry) and schemas.skipped:
        count, last = len(schemas.skipped), max(schemas.skipped.values())
        reason = (
            f"{count} of its records are skipped, the last in partition 0 at offset {last}: "
            "malformed, or with an id that does not follow from the schema; check who may write "
            "there, and delete them by key"
        )
        yield Complaint(names.SCHEMAS_TOPIC, reason, None)


def foreign_records(view: View) -> Iterator[Complaint]:
    """Yield the tasks and sweepers that have passed over records that no task can have written."""
    for task, report in sorted(view.reports.items()):
        if count := report.counts.get(FOREIGN, 0):
            reason = (
                f"it has passed over {count} records that no task can have written (its log names "
                "topic, partition and offset): check who may write there"
            )
            yield Complaint(task, reason, None)


def watermarks_ahead(view: View, *, now_ms: int) -> Iterator[Complaint]:
    """Yield the ingest tasks whose watermark is further ahead of the clock than events may be."""
    for source in view.plan.topology.own_sources.values():
        for task in view.tasks(ingest_scope(source.arc.name)):
            epoch, watermark = last_pair(view, task)
            newest_ms, bound_ms = moment(watermark), source.max_ahead_ms
            if newest_ms is None or bound_ms is None:
                continue
            if newest_ms + source.lateness_ms > now_ms + bound_ms:
                reason = (
                    f"its watermark is {duration_text(newest_ms - now_ms)} ahead of the clock: a "
                    "record with a wrong event time has moved it, and tuples that are older than "
                    "it by more than keep= are refused (see `errata dead-letters`)"
                )
                yield Complaint(task, reason, epoch * INTERVAL_MS)


_SECONDS_OF_OUR_TIME = range(631_152_000, 4_102_444_800)
"""1990 to 2100 in seconds; in ms these are the weeks after the 8th of January 1970."""


def taken_for_ms(source: Source, watermark_ms: int) -> str:
    """Return a sentence if the event times of a source look like seconds; "" if they don't."""
    if source.event_time is not None or watermark_ms not in _SECONDS_OF_OUR_TIME:
        return ""
    field, at = source.arc.event_time, datetime.fromtimestamp(watermark_ms / 1000, UTC)
    return (
        f"the event times of source {source.arc.name!r} are around {at:%Y-%m-%d}: are they "
        f"seconds? Field {field!r} is read as {source.arc.fields[field]}; declare it as long, and "
        f'event_time="timestamp_seconds({field})"'
    )


def times_in_seconds(view: View) -> Iterator[Complaint]:
    """Yield a complaint for each ingest task whose event times look like seconds."""
    for name, source in view.plan.topology.own_sources.items():
        for task in view.tasks(ingest_scope(name)):
            if told := taken_for_ms(source, view.of(task).watermark):
                yield Complaint(task, told, None)


def most_refused(view: View) -> Iterator[Complaint]:
    """Yield the ingest tasks that have refused most of their records."""
    for source in view.plan.topology.sources:
        for task in view.tasks(ingest_scope(source)):
            counts = {CountKey.parse(text): n for text, n in view.of(task).counts.items()}
            reasons = {key.reason: count for key, count in counts.items() if key.reason}
            refused, read = sum(reasons.values()), counts.get(CountKey("read"), 0)
            if refused >= FEWEST_REFUSED and 2 * refused > read:
                most = max(reasons, key=lambda reason: reasons[reason])
                reason = (
                    f"it has refused {refused} of {read} records, {reasons[most]} of them since: "
                    f"{most} (see `errata dead-letters`)"
                )
                yield Complaint(task, reason, None)


def duration_text(ms: int) -> str:
    """Return a duration in its largest unit, rounded down.

    Example:
        >>> duration_text(90 * 86_400_000), duration_text(5_400_000), duration_text(59_000)
        ('90 d', '1 h', '0 m')
    """
    for unit, size in (("d", 86_400_000), ("h", 3_600_000)):
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{ms // 60_000} m"


def silent_filters(plan: CompiledPlan, counts: Iterable[Mapping[str, int]]) -> list[str]:
    """Return a sentence for each filter that has judged tuples and passed none.

    Args:
        plan: The network.
        counts: Running totals of each of its tasks.
    """
    total: Counter[CountKey] = Counter()
    for task_counts in counts:
        total.update({CountKey.parse(text): count for text, count in task_counts.items()})
    return [
        f"filter {name!r} has passed none of {judged} revisions: {box.filter.text}"
        for name, box in plan.boxes.items()
        if box.filter is not None
        and (judged := total[CountKey("judged", name)])
        and not total[CountKey("passed", name)]
    ]
