"""Hostile records for every topic that Errata reads, over tasks in memory.

``python -m tests.faults.hostile --records 1000000`` is the long form; the tests have a short one.
A seed and a kind of topic repeat a run.
"""

import argparse
import faulthandler
import logging
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.faults import hostile_network, hostile_sources, hostile_writers

LONGEST_S = 300
"""A piece that takes longer hangs: the process ends with the place."""
MOST_BYTES = 1_500_000_000
"""What the process may use at its peak; honest records alone use a third of it."""

Run = Callable[[int, int], tuple[Counter[str], list[str]]]


def _of_source(envelope: str, format: str) -> Run:
    def run(seed: int, records: int) -> tuple[Counter[str], list[str]]:
        found = hostile_sources.run(envelope, format, seed=seed, records=records)
        return found.counts, found.faults

    return run


def _of_network(kind: str, *, loose: bool) -> Run:
    def run(seed: int, records: int) -> tuple[Counter[str], list[str]]:
        return hostile_network.run(kind, seed=seed, records=records, loose=loose)

    return run


TOPICS: dict[str, tuple[Run, int, int]] = {
    **{
        f"source {envelope} {format}": (_of_source(envelope, format), 4_000, 74)
        for envelope, format in hostile_sources.KINDS
    },
    **{
        kind + loose: (_of_network(kind, loose=bool(loose)), 1_500, 12)
        for kind in hostile_network.KINDS
        for loose in ("", " that could be true")
    },
    "schemas of writers": (hostile_writers.run, 2_000, 68),
}
"""By topic: what runs a piece, the most records of a piece, and the topic's share."""


def pieces(records: int, topics: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (topic, number, records) of all pieces; every topic has its share of the records."""
    shares = sum(TOPICS[topic][2] for topic in topics)
    found = []
    for topic in topics:
        _, size, share = TOPICS[topic]
        left = max(1, records * share // shares)
        while left > 0:
            found.append((topic, len(found), min(size, left)))
            left -= size
    return found


def judged(topic: str, seed: int, records: int) -> tuple[Counter[str], list[str]]:
    """Run a piece; an exception that escapes is a fault, and a hang ends the process."""
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    try:
        return TOPICS[topic][0](seed, records)
    except Exception:  # noqa: BLE001 that none escapes is what is tried
        lines = traceback.format_exc().splitlines()
        return Counter(records=records), [
            f"{topic}, seed {seed}: escaped: {' | '.join(lines[-12:])}"
        ]
    finally:
        faulthandler.cancel_dump_traceback_later()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--topic", choices=TOPICS, help="only this kind")
    given = parser.parse_args()
    logging.getLogger("errata").setLevel(logging.CRITICAL)
    console, counts, faults = Console(stderr=True), dict[str, Counter[str]](), list[str]()
    todo = pieces(given.records, [given.topic] if given.topic else list(TOPICS))
    began_s = monotonic()
    for topic, number, records in track(todo, "hostile", console=console, transient=True):
        seen, wrong = judged(topic, given.seed * 1_000_003 + number, records)
        counts.setdefault(topic, Counter()).update(seen)
        for fault in wrong:
            console.print(fault, markup=False)
        faults += wrong
    table = Table("topic", "records", "accepted", "dead letters", "passed over", "more", "faults")
    for topic, seen in counts.items():
        known = ("records", "accepted", "dead letters", "passed")
        more = ", ".join(f"{n} {what}" for what, n in seen.items() if what not in known)
        numbers = (f"{seen[what]:,}" if seen[what] else "" for what in known)
        wrong = [fault for fault in faults if fault.startswith(topic.removeprefix("source "))]
        table.add_row(topic, *numbers, more, str(len(wrong)))
    Console(width=200).print(table)
    total = sum(seen["records"] for seen in counts.values())
    print(
        f"{total:,} records in {monotonic() - began_s:.0f} s, {peak_bytes() / 1e6:.0f} MB at most"
    )
    if peak_bytes() > MOST_BYTES:
        faults.append("too much memory")
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
