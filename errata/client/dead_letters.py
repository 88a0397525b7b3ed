"""The dead letters of a network: records that ingest refused, and tuples that a box refused."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from errata.client.sending import Parcel, deliver
from errata.deploy.deployment import DeployedNetwork, UnknownNameError
from errata.observe.network_progress import current
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire.dead_letter import DeadLetter, RecordPlace, decode_value
from errata.schemas.errors import ErrataError
from errata.topics import names
from errata.topics.cluster import Cluster, TopicPartition, catch_up

log = logging.getLogger("errata")


class NoRecordError(ErrataError):
    """A dead letter can't be sent again: it is a tuple that a box refused, not a source's record.

    Args:
        dead_letter: The dead letter.
    """

    def __init__(self, dead_letter: DeadLetter) -> None:
        super().__init__(
            f"a tuple that a box refused ({dead_letter.reason}) can't be sent again: only tasks "
            f"write to topic {dead_letter.topic!r} of an arc; correct the source's record that it "
            "comes from (errata revise)"
        )


def committed(cluster: Cluster, plan: CompiledPlan) -> Iterator[DeadLetter]:
    """Yield the dead letters that a report covers, oldest first; others were never committed.

    See ``docs/protocol.md#5-committed-records``.
    """
    return (dead_letter for _, dead_letter in committed_from(cluster, plan, 0))


def committed_from(
    cluster: Cluster, plan: CompiledPlan, offset: int
) -> Iterator[tuple[int, DeadLetter]]:
    """Yield the committed dead letters from an offset of their topic on, each with its offset."""
    source = TopicPartition(names.dead_letters_topic(plan.network), 0)
    reader = cluster.reader({source: offset})
    try:
        batches = list(catch_up(cluster, reader, source))
    finally:
        reader.close()
    # Read after the dead letters, so that its reports cover all of them.
    view = current(cluster, plan)
    view.close()
    foreign: list[int] = []
    newest: dict[str, tuple[int, int]] = {}
    told: dict[str, set[DeadLetter]] = {}
    for records in batches:
        for place, value in zip(records.offsets, records.values, strict=True):
            dead_letter = decode_value(value)
            if dead_letter is None and value is not None:
                foreign.append(place)
            if dead_letter and view.of(dead_letter.task).covers(
                dead_letter.attempt, dead_letter.epoch
            ):
                task, epoch = dead_letter.task, (dead_letter.attempt, dead_letter.epoch)
                if newest.get(task) != epoch:
                    newest[task], told[task] = epoch, set()
                if dead_letter not in told[task]:  # a task of a batch on Spark may run twice
                    told[task].add(dead_letter)
                    yield place, dead_letter
    if foreign:
        log.warning(
            "%d records of topic '%s' are no dead letters, the last in partition 0 at offset %d; "
            "they are passed over: check who may write there",
            len(foreign), source.topic, foreign[-1],
        )  # fmt: skip


def letter_at(dead_letters: list[DeadLetter], place: str) -> DeadLetter:
    """Return the dead letter of the refused record at a place.

    Args:
        dead_letters: Among these; of several at the place, the last.
        place: The place: ``PARTITION:OFFSET``, or with the topic before it.

    Raises:
        PlaceError: If the text does not name a place.
        UnknownNameError: If there is none, or several topics have one at that place.
    """
    wanted = RecordPlace.parse(place)
    matches = [x for x in dead_letters if x.place == replace(wanted, topic=wanted.topic or x.topic)]
    if len({x.topic for x in matches}) > 1:
        forms = " or ".join(str(x.place) for x in matches)
        raise UnknownNameError(f"several topics have a dead letter at {place}; use {forms}")
    if not matches:
        some = ", ".join(str(x.place) for x in dead_letters[-5:]) or "none"
        raise UnknownNameError(f"no dead letter has the place {place}; the newest have: {some}")
    return matches[-1]


def chosen(
    deployment: DeployedNetwork,
    dead_letters: list[DeadLetter],
    *,
    every: bool,
    reasons: list[str],
    places: list[str],
) -> list[DeadLetter]:
    """Return the dead letters that are named, to be sent again.

    Args:
        deployment: The network.
        dead_letters: All of them.
        every: Whether all are, but those of boxes.
        reasons: Those with one of these reasons.
        places: Those at one of these places; see `letter_at`.

    Raises:
        UnknownNameError: If none has such a reason or place.
        NoRecordError: If a named one is a tuple that a box refused.
    """
    known = list(dict.fromkeys(dead_letter.reason for dead_letter in dead_letters))
    for reason in reasons:
        deployment.require_known("dead letter with reason", reason, known)
    wanted = [letter_at(dead_letters, place) for place in places]
    named = [x for x in dead_letters if x.reason in reasons or x in wanted]
    if tuple_of_box := next((x for x in named if x.is_of_box), None):
        raise NoRecordError(tuple_of_box)
    return [x for x in dead_letters if x in named or (every and not x.is_of_box)]


def send_again(
    cluster: Cluster, letters: Sequence[DeadLetter], *, dry_run: bool = False
) -> list[tuple[DeadLetter, int | None]]:
    """Send refused records again, verbatim, to where they were.

    Returns:
        The dead letters without those that equal another one in partition, key and value, with the
        offset that each record now has; None in a dry run.
    """
    by_record = {Parcel(TopicPartition(x.topic, x.partition), x.key, x.value): x for x in letters}
    offsets: list[int | None] = [None] * len(by_record)
    if not dry_run:
        offsets = list(deliver(cluster, list(by_record)))
    return list(zip(by_record.values(), offsets, strict=True))


def as_plain(dead_letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as plain values; bytes that are not text as ``key_base64`` and so on."""
    plain = vars(dead_letter).copy()
    for side in ("key", "value"):
        content = plain[side]
        if content is not None:
            try:
                plain[side] = content.decode()
            except UnicodeDecodeError:
                del plain[side]
                plain[f"{side}_base64"] = base64.b64encode(content).decode()
    return plain
