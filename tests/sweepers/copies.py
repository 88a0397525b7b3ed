"""Copies of connection points, and the histories that they must answer as, for their tests."""

from __future__ import annotations

import errno
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from errata.processors.boxes.replay import ReplayQuery
from errata.processors.tasks.replay_client import Gathered
from errata.schemas import revisions as rev
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType, physical
from errata.sweepers.store import Part, Store

Tuple = dict[str, Any]


def arc_of(
    fields: Mapping[str, str], *, identity: tuple[str, ...], event_time: str, shift: int
) -> Arc:
    kinds = {name: FieldType.parse(kind) for name, kind in fields.items()}
    return Arc("made", kinds, identity, event_time, (), event_time_shift_ms=shift)


TRADES = arc_of(
    {
        "key": "string",
        "at": "timestamp-millis",
        "product": "string?",
        "notional": "decimal(18,2)",
    },
    identity=("key",),
    event_time="at",
    shift=0,
)
TOTALS = arc_of(
    {
        "product": "string",
        "window_start": "timestamp-millis",
        "window_end": "timestamp-millis",
        "traded": "decimal(38,2)",
        "trades": "long",
        "ratio": "double?",
    },
    identity=("product", "window_start"),
    event_time="window_end",
    shift=-1,
)

IDENTITIES: dict[str, list[Tuple]] = {
    "key": [{"key": f"trade number {n} with a name too long to be inlined"} for n in range(6)],
    "product": [{"product": p, "window_start": s} for p in ("a", "b") for s in (0, 10, 20)],
}
VALUES: dict[str, list[Any]] = {
    "at": list(range(0, 30, 3)),
    "window_end": list(range(1, 30, 4)),
    "product": [None, "a", "b"],
    "notional": [-5, 0, 10**17],
    "traded": [10**38 - 1, 1 - 10**38, 7],
    "trades": [1, 2],
    "ratio": [None, math.nan, 0.0, -0.0, 1.5],
}


@dataclass
class Oracle:
    """A plain history: the state after each epoch, and the revisions that led there."""

    states: list[dict[int, Tuple]] = field(default_factory=list)
    revisions: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, arc: Arc, epoch: int, asked: Callable[[Tuple, int], bool]) -> list[str]:
        return sorted(
            repr(tuple(t.values()))
            for t in self.states[epoch].values()
            if asked(t, t[arc.event_time] + arc.event_time_shift_ms)
        )


def history(arc: Arc, seed: random.Random, epoch_count: int) -> Oracle:
    """Inserts, replaces (of any field but the identity), deletes, reinserts, partition moves."""
    made, state = Oracle(), dict[int, Tuple]()
    names = IDENTITIES[arc.identity[0]]
    for epoch in range(epoch_count):
        for number in seed.sample(range(len(names)), seed.randint(0, 4)):
            values = {n: seed.choice(VALUES[n]) for n in arc.fields if n not in arc.identity}
            new = {n: (names[number] | values)[n] for n in arc.fields}
            old = state.get(number)
            kind = seed.choice(["replace", "replace", "delete", "move"]) if old else "insert"
            if kind in ("delete", "move"):
                made.revisions.append({"op": rev.DELETE, "b": old, "a": None, "epoch": epoch})
            if kind in ("insert", "move"):
                made.revisions.append({"op": rev.INSERT, "b": None, "a": new, "epoch": epoch})
            if kind == "replace":
                made.revisions.append({"op": rev.REPLACE, "b": old, "a": new, "epoch": epoch})
            state = {n: t for n, t in state.items() if n != number}
            if kind != "delete":
                state[number] = new
        made.states.append(state)
    return made


def frame(arc: Arc, revisions: list[dict[str, Any]]) -> pl.DataFrame:
    rows = [
        {"op": r["op"], "epoch": r["epoch"]}
        | {
            prefix + n: r[s] and r[s][n]
            for s, prefix in (("b", rev.BEFORE), ("a", rev.AFTER))
            for n in arc.fields
        }
        for r in revisions
    ]
    return pl.DataFrame(rows, schema={**rev.schema(arc.fields), "epoch": pl.Int64})


def shown(tuples: pl.DataFrame) -> list[str]:
    return sorted(repr(row) for row in tuples.rows())


def same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def some_fields(arc: Arc, seed: random.Random) -> tuple[str, ...]:
    """The fields by which a copy is clustered, in half of the cases none."""
    return tuple(seed.sample(list(arc.fields), seed.choice([0, 0, 1, 2])))


def feed(store: Store, arc: Arc, made: Oracle, upto: int, seed: random.Random) -> None:
    """Append the epochs after the store's, all at once, in any order of rows."""
    part = [r for r in made.revisions if store.upto < r["epoch"] <= upto]
    store.append(frame(arc, seed.sample(part, len(part))), upto=upto, resume=resume_of(upto))


def resume_of(upto: int) -> int:
    return 100 + 7 * upto if upto >= 0 else 0


def check(store: Store, arc: Arc, made: Oracle, oldest_ms: int, seed: random.Random) -> None:
    """Ask for all tuples, and for random ranges, as of every epoch that can be asked for."""
    for epoch in range(store.floor, store.upto + 1):
        everything = made.answer(arc, epoch, lambda _, at: at >= oldest_ms)
        assert shown(store.as_of(epoch, None)) == everything
        group = seed.sample(list(arc.fields), seed.randint(0, 2))
        tuples = [
            names | {n: seed.choice(VALUES.get(n, [0])) for n in arc.fields if n not in names}
            for names in seed.choices(IDENTITIES[arc.identity[0]], k=seed.randint(0, 6))
        ]
        starts = [seed.randint(-2, 30) for _ in tuples]
        ranges = [(s, s + seed.randint(-1, 12), t) for s, t in zip(starts, tuples, strict=True)]
        low, high = seed.choice([None, 5]), seed.choice([None, 25])
        asked = pl.DataFrame(
            [{"from_ms": s, "to_ms": e} | {n: t[n] for n in group} for s, e, t in ranges],
            schema={"from_ms": pl.Int64, "to_ms": pl.Int64}
            | {n: physical(arc.fields)[n] for n in group},
        )

        def wanted(
            t: Tuple,
            at: int,
            ranges: Any = ranges,
            group: Any = group,
            low: Any = low,
            high: Any = high,
        ) -> bool:
            return (
                at >= oldest_ms
                and (low is None or at >= low)
                and (high is None or at < high)
                and any(s <= at < e and all(same(r[n], t[n]) for n in group) for s, e, r in ranges)
            )

        found = store.as_of(epoch, asked, from_ms=low, to_ms=high)
        assert found.schema == physical(arc.fields)
        assert shown(found) == made.answer(arc, epoch, wanted)
        parts = in_parts(store, arc, epoch, asked, most_bytes=seed.choice([1, 300, 1_000]))
        whole = pl.concat([part.tuples for part in parts])
        assert shown(whole) == shown(store.as_of(epoch, asked))


def in_parts(
    store: Store, arc: Arc, epoch: int, ranges: pl.DataFrame, *, most_bytes: int
) -> list[Part]:
    """Return the parts of an answer: each is asked for what the ones before it do not cover."""
    gathered, parts = Gathered(ReplayQuery("made", epoch, ranges), arc), list[Part]()
    while not gathered.is_whole:
        left = gathered.left
        part = store.part(epoch, left, most_bytes=most_bytes)
        covered = store.as_of(epoch, left[: part.covered], to_ms=part.upto_ms)
        assert shown(part.tuples) == shown(covered)
        gathered.add(part.tuples, part.covered, part.upto_ms)
        assert not gathered.left.equals(left) or left.is_empty()
        parts.append(part)
    return parts


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path) / "copy"


def trade(n: int, at: int, *, key: str | None = None) -> Tuple:
    return {"key": key or f"k{n}", "at": at, "product": "a", "notional": n}


def inserts(count: int, *, epoch: int) -> pl.DataFrame:
    return frame(
        TRADES,
        [
            {"op": rev.INSERT, "b": None, "a": trade(n, n, key=f"{epoch}/{n}"), "epoch": epoch}
            for n in range(count)
        ],
    )


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("segment-*"))


def full_after(writes: int) -> Callable[[int], None]:
    """Return an `fsync` that fails for want of room once so many calls have succeeded."""
    real, left = os.fsync, [writes]

    def fsync(number: int) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        real(number)

    return fsync
