"""`errata dead-letters`: what was refused, verbatim, and why."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from time import sleep
from typing import Any

from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.deployed import deployed
from errata.cli.output import as_time, for_people, print_lines, print_table
from processors.dead_letter import DeadLetter, decode
from processors.plan import Plan
from processors.view import View
from schemas import framing
from topics import names
from topics.catch_up import catch_up
from topics.cluster import Cluster, TopicPartition

MOST_SHOWN = 100
"""Rows of the table for people."""
_PAUSE_S = 0.02


@command("dead-letters", example="errata dead-letters tape.py --json > refused.jsonl")
def dead_letters(net: NetworkArgument, as_json: JsonOption = False) -> None:
    """List what was refused at ingest: the record, where it lies, and why.

    JSON lines, or on a terminal a table of the newest hundred. Keys and values are given as text,
    or in key_base64 and value_base64 where they are none.
    """
    with deployed(net) as (cluster, plan):
        letters = believed_letters(cluster, plan)
        if as_json or not for_people():
            print_lines(map(_line, letters))
            return
        found = list(letters)
    counts = Counter(letter.reason for letter in found)
    told = ", ".join(f"{count} {reason}" for reason, count in counts.most_common()) or "none"
    rest = f"; the newest {MOST_SHOWN} of {len(found)}" if len(found) > MOST_SHOWN else ""
    print_table(
        f"dead letters of {plan.network}",
        ["reason", "detail", "topic", "partition", "offset", "written", "key", "value"],
        (
            (x.reason, x.detail, x.topic, x.partition, x.offset, as_time(x.time_ms), *_texts(x))
            for x in found[-MOST_SHOWN:]
        ),
        caption=told + rest,
    )


def believed_letters(cluster: Cluster, plan: Plan) -> Iterator[DeadLetter]:
    """Yield the dead letters that exist, oldest first: those that a report covers (DESIGN 3)."""
    source = TopicPartition(names.dead_letters_topic(plan.network), 0)
    reader = cluster.reader({source: 0})
    try:
        found = list(catch_up(cluster, reader, source))
    finally:
        reader.close()
    view = View(cluster, plan=plan)  # read after the letters, so that it knows of all of them
    end = cluster.end(view.source)
    while not view.has_read_to(end):
        view.poll()
        sleep(_PAUSE_S)
    for records in found:
        for value in records.values:
            letter = _letter(value)
            if letter and view.of(letter.task).covers(letter.attempt, letter.epoch):
                yield letter


def _letter(value: bytes | None) -> DeadLetter | None:
    """Return a dead letter; None for what is none, whoever wrote it."""
    try:
        return decode((value or b"")[framing.HEAD_BYTES :])
    except (ValueError, EOFError, IndexError, TypeError, StopIteration):
        return None


def _line(letter: DeadLetter) -> dict[str, Any]:
    plain = vars(letter).copy()
    for side in ("key", "value"):
        content = plain[side]
        if content is not None:
            try:
                plain[side] = content.decode()
            except UnicodeDecodeError:
                del plain[side]
                plain[f"{side}_base64"] = base64.b64encode(content).decode()
    return plain


def _texts(letter: DeadLetter) -> list[str]:
    return [(side or b"").decode(errors="backslashreplace") for side in (letter.key, letter.value)]
