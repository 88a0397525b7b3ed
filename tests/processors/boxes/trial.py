"""A box alone, epoch by epoch, with a desk that knows no more than it is asked for."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any

import polars as pl
from hypothesis import strategies as st

from errata import Network
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.base import INPUTS, Live, Need
from errata.processors.boxes.modes import ADAPTIVE, DOWNSTREAM, Choice
from errata.processors.boxes.where import Where
from errata.processors.compile.compiler import type_boxes
from errata.processors.windows.time_windows import History, Hopping, Sliding
from errata.schemas import revisions as frames
from errata.schemas.fields import physical
from tests.laws.user_functions import Bits, SlowDot, SlowPeak

NEVER, FOREVER = -(2**62), 2**62

Tuple = dict[str, Any]
Content = dict[str, Tuple]

FIELDS = {"key": "string", "at": "timestamp-millis", "desk": "string?", "amount": "long?"}
RESULTS = {
    "n": "count(*)",
    "some": "count(amount)",
    "total": "sum(amount)",
    "most": "max(amount)",
    "least": "min(amount)",
    "mean": "avg(amount)",
    "oldest": "first(amount)",
    "newest": "last(amount)",
    "spread": "max(amount) - min(amount)",
}
WRITTEN = {
    "dot": SlowDot("coalesce(amount, 0)", "coalesce(amount, 0)"),
    "peak": SlowPeak("amount"),
    "bits": Bits("amount"),
}
"""More results, of functions that a user wrote."""


def make(
    window: Any,
    *,
    mode: str,
    emit: str = "on_close",
    by: tuple[str, ...] = ("desk",),
    filtered: str | None = None,
    written: bool = False,
) -> Aggregate:
    """Return a box over a source of `FIELDS`, with a filter between it and its stored results.

    In adaptive mode it can fetch each result, and replay each window.
    """
    fields = RESULTS | (WRITTEN if written else {})
    net = Network("boxes")
    trades = net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", partition_by=[], keep="1d"
    )
    sums = trades.aggregate("sums", by=by, window=window, emit=emit, fields=fields, keep="1d")
    sums.where("shown", filtered or "true")
    typed = type_boxes(net)
    assert not typed.faults, typed.faults
    box, shown = typed.boxes["sums"], typed.boxes["shown"]
    assert isinstance(box, Aggregate)
    assert isinstance(shown, Where)
    filters = (shown,) if filtered else ()
    if mode == ADAPTIVE:
        chooses = isinstance(box.window, Hopping)
        return box.in_mode(Choice(DOWNSTREAM, ADAPTIVE, "", "sums", chooses=chooses), filters)
    return replace(box, mode=mode, filters=filters)


# -------------------------------------------------------------------------------- a plain reference


def plain_windows(window: Any, times: list[int]) -> list[tuple[int, int]]:
    """Return the windows without a zone that hold any of some times, as (start, end)."""
    if isinstance(window, History):
        return [(NEVER, FOREVER)]
    if isinstance(window, Sliding):
        return [(t + 1 - window.size_ms, t + 1) for t in sorted(set(times))]
    starts = {
        start
        for t in times
        for start in range(t - window.size_ms - window.slide_ms, t + 1)
        if (start - window.origin_ms) % window.slide_ms == 0 and start + window.size_ms > t
    }
    return [(start, start + window.size_ms) for start in sorted(starts)]


def plain_results(amounts: list[int | None]) -> tuple[Any, ...]:
    """Return `RESULTS` of tuples in the order of event time and identity."""
    values = [amount for amount in amounts if amount is not None]
    most, least = max(values, default=None), min(values, default=None)
    return (
        len(amounts),
        len(values),
        sum(values) if values else None,
        most,
        least,
        sum(values) / len(values) if values else None,
        amounts[0],
        amounts[-1],
        None if most is None or least is None else most - least,
    )


def plain_written(amounts: list[int | None]) -> tuple[Any, ...]:
    """Return `WRITTEN` of the same."""
    values = [amount for amount in amounts if amount is not None]
    bits = reduce(or_, values) if values else None
    return sum(value * value for value in values), max(values, default=None), bits


def reference(box: Aggregate, content: Content, wm: int) -> list[tuple[Any, ...]]:
    """Return the visible results that a content has, by plain loops."""
    found = []
    groups: dict[tuple[Any, ...], list[Tuple]] = {}
    for t in content.values():
        groups.setdefault(tuple(t[name] for name in box.by), []).append(t)
    for group, tuples in groups.items():
        for start, end in plain_windows(box.window, [t["at"] for t in tuples]):
            if end > wm and not box.on_update:
                continue
            inside = sorted(
                (t for t in tuples if start <= t["at"] < end), key=lambda t: (t["at"], t["key"])
            )
            bounds = () if isinstance(box.window, History) else (start, end)
            amounts = [t["amount"] for t in inside]
            written = plain_written(amounts) if "bits" in box.results else ()
            found.append((*group, *bounds, *plain_results(amounts), *written))
    return sorted(found, key=repr)


# -------------------------------------------------------------------------------- driving a box


@dataclass
class Trial:
    """Takes a box through epochs; holds what came out against `reference` and `recompute`.

    Args:
        box: The box.
        wanted: Gives the visible results that a content has at a watermark, by plain loops.
        generous: Whether questions are answered with all there is, and not with what was asked for
            and no filter hides.
    """

    box: Any
    wanted: Callable[[Any, Content, int], list[tuple[Any, ...]]] = reference
    generous: bool = False
    content: Content = field(default_factory=dict)
    wm: int = NEVER
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.live: Live = self.box.no_live()
        self.told = pl.DataFrame(schema=physical(self.box.arc.fields))

    def frame(self, content: Content) -> pl.DataFrame:
        return pl.DataFrame(list(content.values()), schema=physical(self.box.input.fields))

    def epoch(self, changes: dict[str, Tuple | None], wm: int) -> pl.DataFrame:
        """Process what some keys are from now on; return the revisions of the output."""
        before = {key: self.content[key] for key in changes if key in self.content}
        after = {key: t for key, t in changes.items() if t is not None}
        revisions = self.revisions(before, after)
        for key in changes:
            self.content.pop(key, None)
        self.content |= after
        closes = self.box.closes(self.live, wm=self.wm)
        if not changes and (closes is None or closes > wm):
            self.wm = wm
            self.check()
            return revisions
        run = self.box.process(revisions, live=self.live, wm_before=self.wm, wm=wm)
        try:
            need = next(run)
            while True:
                self.seen[need.kind] += 1
                need = run.send([self.answer(need)])
        except StopIteration as stop:
            outcome = stop.value
        self.seen.update(outcome.counts)
        self.live, self.wm = outcome.live, wm
        self.take(outcome.revisions)
        self.check()
        return outcome.revisions

    def revisions(self, before: Content, after: Content) -> pl.DataFrame:
        keys = list(before | after)
        sides = [
            (
                pl.DataFrame(
                    [side.get(k, {}) for k in keys], schema=physical(self.box.input.fields)
                ),
                pl.Series([k in side for k in keys], dtype=pl.Boolean),
            )
            for side in (before, after)
        ]
        return frames.between(*sides[0], *sides[1])

    def answer(self, need: Need) -> pl.DataFrame:
        """Return what is asked for, and nothing else unless generous."""
        known, arc = self.frame(self.content), self.box.input
        if need.kind != INPUTS:
            known, arc = self.told, self.box.arc
            for where in () if self.generous else self.box.filters:
                known = known.filter(where.passes(known))
        times = arc.event_times(known)
        if need.kind != INPUTS:
            known = known.select(list(self.box.stored.fields))
        if self.generous:
            return known
        asked = need.ranges.rows(named=True)
        rows = [
            number
            for number, (row, at) in enumerate(zip(known.rows(named=True), times, strict=True))
            if any(
                r["from_ms"] <= at < r["to_ms"] and all(r[n] == row[n] for n in self.box.by)
                for r in asked
            )
        ]
        return known[rows]

    def take(self, revisions: pl.DataFrame) -> None:
        """Fold the output, seeing that `before` is what was told last (L2, L3)."""
        arc = self.box.arc
        names, identity = list(arc.fields), list(arc.identity)
        keys = frames.identities(revisions, identity)
        assert not keys.is_duplicated().any()
        leaving = frames.leaving(revisions, names)
        left = self.told.join(leaving, on=names, how="anti", nulls_equal=True)
        assert left.height == self.told.height - leaving.height
        entering = frames.entering(revisions, names)
        same = leaving.join(entering, on=names, how="semi", nulls_equal=True)
        assert same.is_empty()
        self.told = pl.concat([left, entering])
        assert not self.told.select(identity).is_duplicated().any()

    def check(self) -> None:
        """See that what is told is what a recomputation gives, hidden part included (L1)."""
        wanted = self.box.recompute(self.frame(self.content), wm=self.wm)
        assert_same(self.told, wanted)
        visible = sorted(self.told.select(self.box.arc.visible).rows(), key=repr)
        assert visible == self.wanted(self.box, self.content, self.wm)

    def restart(self) -> None:
        """Lose what is kept, and make it again from the inputs since `live_from_ms`."""
        from_ms = self.box.live_from_ms(self.wm)
        since = {k: t for k, t in self.content.items() if t["at"] >= from_ms}
        self.live = self.box.restore(self.frame(since), wm=self.wm)


def assert_same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """See that two frames have the same rows."""
    assert one.columns == other.columns
    assert sorted(one.rows(), key=repr) == sorted(other.rows(), key=repr)


# -------------------------------------------------------------------------------- random epochs

SPAN = 40

_tuples = st.builds(
    dict,
    at=st.integers(-SPAN, SPAN),
    desk=st.sampled_from(["a", "b", None]),
    amount=st.none() | st.integers(-3, 3),
)
_keys = st.sampled_from([str(number) for number in range(8)])
_changes = st.dictionaries(_keys, st.none() | _tuples, max_size=5)

epochs = st.lists(st.tuples(_changes, st.integers(0, 25), st.booleans()), max_size=8)
"""What some keys are from now on, how far the watermark goes on, and whether the box restarts."""


def _mode(box: Any) -> str:
    return ADAPTIVE if getattr(box, "chooses", False) else getattr(box, "mode", "lag")


def run(
    boxes: Sequence[Any], steps: list[tuple[Any, ...]], wanted: Any = reference
) -> Counter[str]:
    """Take boxes through the same epochs; they must tell the same revisions (L5)."""
    trials = [Trial(box, wanted) for box in boxes]
    wm = -SPAN
    for number, (changes, onward, restarts) in enumerate([*steps, ({}, 0, False)]):
        wm = FOREVER if number == len(steps) else wm + onward
        named = {key: t and {"key": key, **t} for key, t in changes.items()}
        for trial in trials:
            trial.generous = number % 2 == 1
        told = [trial.epoch(named, wm) for trial in trials]
        for other in told[1:]:
            assert_same(told[0], other)
        for trial in trials:
            if restarts:
                trial.restart()
    return Counter(
        {f"{_mode(t.box)} {what}": count for t in trials for what, count in t.seen.items()}
    )
