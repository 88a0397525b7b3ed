"""The dead letters of a network: records that ingest refused, and tuples that a box refused."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Acknowledged:
    """Which dead letters somebody has seen to: those up to an offset, and some more.

    It is the committed position of a consumer group, with the others as its note. So Kafka's own
    tools show how many are open, as the lag of the group.

    Args:
        upto: Dead letters before this offset of their topic are.
        others: And those at these offsets.
    """

    upto: int = 0
    others: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Acknowledged:
        """Return what a note says; an empty one of a text that is none.

        Example:
            >>> Acknowledged.parse("17 19 23-24")
            Acknowledged(upto=17, others=frozenset({24, 19, 23}))
            >>> Acknowledged.parse("none")
            Acknowledged(upto=0, others=frozenset())
        """
        if not _NOTE.fullmatch(text):
            return cls()
        upto, *parts = text.split()
        ends = [(int(first), int(last or first)) for first, _, last in
                (part.partition("-") for part in parts)]  # fmt: skip
        if sum(max(0, last - first) for first, last in ends) > MOST_OTHERS:
            return cls()
        spans = [range(first, last + 1) for first, last in ends]
        return cls(int(upto), frozenset(offset for span in spans for offset in span))

    def __str__(self) -> str:
        parts = list[list[int]]()
        for offset in sorted(self.others):
            if parts and parts[-1][-1] == offset - 1:
                parts[-1][1:] = [offset]
            else:
                parts.append([offset])
        return " ".join([str(self.upto), *("-".join(map(str, part)) for part in parts)])

    def __contains__(self, offset: int) -> bool:
        return offset < self.upto or offset in self.others

    def and_these(self, offsets: Collection[int], *, known: Sequence[int]) -> Acknowledged:
        """Return it with more dead letters; `known` are the offsets of all that there are."""
        done = {offset for offset in known if offset in self} | {*offsets}
        left = [offset for offset in known if offset not in done]
        upto = left[0] if left else max([self.upto, *(offset + 1 for offset in known)])
        return Acknowledged(upto, frozenset(offset for offset in done if offset >= upto))


_NOTE = re.compile(r"\d{1,18}( \d{1,18}(-\d{1,18})?)*")
MOST_OTHERS = 1_000_000
LONGEST_NOTE = 4_000
"""Characters of a note: brokers take 4096 bytes."""


class ManyGapsError(ErrataError):
    """Too many dead letters between acknowledged ones are open."""


def acknowledged(cluster: Cluster, network: str) -> Acknowledged:
    """Return which dead letters are acknowledged."""
    place = TopicPartition(names.dead_letters_topic(network), 0)
    return Acknowledged.parse(cluster.note(names.acknowledging(network), [place]))


def acknowledge(cluster: Cluster, network: str, state: Acknowledged) -> None:
    """Store which dead letters are acknowledged.

    Raises:
        ManyGapsError: If they can't be told in a few thousand characters.
        ClusterError: If the cluster refuses.
    """
    if len(str(state)) > LONGEST_NOTE:
        raise ManyGapsError(
            "too many open dead letters lie between acknowledged ones; acknowledge the oldest ones "
            "first (all of a reason, or --all)"
        )
    name, place = names.acknowledging(network), TopicPartition(names.dead_letters_topic(network), 0)
    transactions = cluster.transactions(name)
    try:
        transactions.begin()
        transactions.offsets(name, {place: state.upto}, note=str(state))
        transactions.commit()
    finally:
        transactions.close()


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


def letter_at(dead_letters: Sequence[DeadLetter], place: str) -> DeadLetter:
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


def contains(letter: DeadLetter, text: str) -> bool:
    """Return whether the detail, the key or the value of a dead letter contains a text."""
    wanted = text.encode()
    return any(
        wanted in part for part in (letter.detail.encode(), letter.key, letter.value) if part
    )


class EditedLineError(ErrataError):
    """A line of a list of dead letters to be sent is malformed."""


def edited(letters: Sequence[DeadLetter], lines: Sequence[bytes]) -> list[DeadLetter]:
    """Return dead letters with the keys and values that lines give them.

    Args:
        letters: All dead letters.
        lines: JSON objects as `as_plain` gives them, with another ``key``, ``value``,
            ``key_base64`` or ``value_base64``; a side that is left out stays as it was.

    Raises:
        EditedLineError: If a line is none, or has bytes that are no base64.
        UnknownNameError: If there is no dead letter at its place.
        NoRecordError: If it is a tuple that a box refused.
    """
    found: list[DeadLetter] = []
    for number, line in enumerate(lines, start=1):
        try:
            wish = json.loads(line)
            place = RecordPlace(str(wish["topic"]), int(wish["partition"]), int(wish["offset"]))
            sides = dict(_side(wish, side) for side in ("key", "value") if _has(wish, side))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EditedLineError(
                f"line {number} needs a JSON object with topic, partition, offset, and key or "
                f"value (or key_base64, value_base64), as `errata dead-letters --json` prints it; "
                f"{error}"
            ) from error
        letter = letter_at(letters, str(place))
        if letter.is_of_box:
            raise NoRecordError(letter)
        found.append(
            replace(
                letter, key=sides.get("key", letter.key), value=sides.get("value", letter.value)
            )
        )
    return found


def _has(wish: Mapping[str, Any], side: str) -> bool:
    return side in wish or f"{side}_base64" in wish


def _side(wish: Mapping[str, Any], side: str) -> tuple[str, bytes | None]:
    if f"{side}_base64" in wish:
        return side, base64.b64decode(wish[f"{side}_base64"], validate=True)
    return side, None if wish[side] is None else str(wish[side]).encode()


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
