"""The copy of a connection point answers as a dict of versions would, whatever happened to it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.processors.wire.replay import size_of
from errata.schemas import revisions as rev
from errata.schemas.arc import Arc
from errata.sweepers import segments
from errata.sweepers.ranges import (
    EpochOrderError,
    HistoryRemovedError,
    NotYetCompleteError,
    hashing,
)
from errata.sweepers.store import NO_LIMIT, Store
from tests.sweepers.copies import (
    TOTALS,
    TRADES,
    Oracle,
    Tuple,
    arc_of,
    check,
    feed,
    folder,
    frame,
    history,
    in_parts,
    inserts,
    resume_of,
    shown,
    size,
    some_fields,
    trade,
)

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.mark.parametrize("arc", [TRADES, TOTALS], ids=["trades", "totals"])
@settings(max_examples=25)
@given(
    number=st.integers(0, 2**32), epoch_count=st.integers(1, 16), segment_rows=st.integers(2, 20)
)
def test_oracle_as_of_equals_a_fold_over_seals_rewrites_crashes_and_forgetting(
    arc: Arc, number: int, epoch_count: int, segment_rows: int
) -> None:
    seed, last = random.Random(number), epoch_count - 1
    made, clustered = history(arc, seed, epoch_count), some_fields(arc, seed)
    with folder() as path:
        store = Store(path, arc=arc, clustered=clustered, segment_rows=segment_rows)
        oldest_ms = -(2**62)
        while store.upto < last:
            feed(store, arc, made, min(last, store.upto + seed.randint(1, 4)), seed)
            if seed.random() < 0.4:
                store.raise_floor(seed.randint(0, store.upto))
            if seed.random() < 0.2:
                oldest_ms = max(oldest_ms, seed.randint(0, 12))
                store.drop_before(oldest_ms)
            if seed.random() < 0.3:
                store.seal()
                assert store.sealed == store.upto
            if seed.random() < 0.3:  # a crash: no close; what is not sealed comes again
                store = Store(path, arc=arc, clustered=clustered, segment_rows=segment_rows)
                assert store.rebuilt is None
                assert store.resume == resume_of(store.upto)
                store.drop_before(oldest_ms)
            check(store, arc, made, oldest_ms, seed)


@pytest.mark.parametrize("arc", [TRADES, TOTALS], ids=["trades", "totals"])
@settings(max_examples=25)
@given(
    number=st.integers(0, 2**32), epoch_count=st.integers(1, 12), segment_rows=st.integers(2, 20)
)
def test_oracle_the_last_version_counts_wherever_the_brokers_have_lost_revisions(
    arc: Arc, number: int, epoch_count: int, segment_rows: int
) -> None:
    seed, last = random.Random(number), epoch_count - 1
    whole = history(arc, seed, epoch_count)
    left = [r for r in whole.revisions if seed.random() < 0.7]
    state = dict[tuple[Any, ...], Tuple]()
    for revision in left:
        key = tuple((revision["a"] or revision["b"])[name] for name in arc.identity)
        state.pop(key, None)
        if revision["a"] is not None:
            state[key] = revision["a"]
    made = Oracle([dict(enumerate(state.values()))] * epoch_count, left)
    clustered = some_fields(arc, seed)
    with folder() as path:
        store = Store(path, arc=arc, clustered=clustered, segment_rows=segment_rows)
        while store.upto < last:
            feed(store, arc, made, min(last, store.upto + seed.randint(1, 4)), seed)
        store.settle(last)
        check(store, arc, made, -(2**62), seed)


def test_new_store_has_seen_no_epoch_and_resumes_at_the_start(tmp_path: Path) -> None:
    store = Store(tmp_path / "made" / "on demand", arc=TRADES)
    assert (store.upto, store.resume, store.floor, store.rebuilt) == (-1, 0, 0, None)
    with pytest.raises(NotYetCompleteError, match="complete only up to epoch -1"):
        store.as_of(0, None)


def test_as_of_refuses_epochs_below_the_floor_and_above_upto(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES)
    store.append(inserts(3, epoch=4), upto=9, resume=1)
    store.raise_floor(5)
    store.raise_floor(3)
    with pytest.raises(HistoryRemovedError, match="request epoch 5 or later"):
        store.as_of(4, None)
    with pytest.raises(NotYetCompleteError, match="up to epoch 9"):
        store.as_of(10, None)
    assert store.as_of(5, None).height == store.as_of(9, None).height == 3


GROUPS, EACH, MOST_BYTES = 50, 40, 20_000


@pytest.mark.parametrize("segment_rows", [100, 10_000])
@pytest.mark.parametrize("by", ["product", "time", None, "product at one time"])
@pytest.mark.parametrize("clustered", [(), ("product",)], ids=["by time", "clustered"])
def test_parts_of_a_large_answer_are_bounded_and_few(
    tmp_path: Path, by: str | None, segment_rows: int, clustered: tuple[str, ...]
) -> None:
    """Whether many groups, many times, or one range with everything is asked for."""
    step = 0 if by == "product at one time" else 50
    rows = [
        {
            "key": f"{group}.{n}",
            "at": n * step + (group if step else 0),
            "product": f"{group}",
            "notional": n,
        }
        for group in range(GROUPS)
        for n in range(EACH)
    ]
    revisions = [{"op": rev.INSERT, "b": None, "a": row, "epoch": 0} for row in rows]
    store = Store(tmp_path / "copy", arc=TRADES, clustered=clustered, segment_rows=segment_rows)
    store.append(frame(TRADES, revisions), upto=0, resume=1)
    last_ms = EACH * 50
    if by in ("product", "product at one time"):
        groups = [f"{group}" for group in range(GROUPS)]
        ranges = pl.DataFrame(
            {"from_ms": [0] * GROUPS, "to_ms": [last_ms] * GROUPS, "product": groups}
        )
    else:
        starts = range(0, last_ms, 50) if by == "time" else [0]
        ends = [start + 50 for start in starts] if by == "time" else [last_ms]
        ranges = pl.DataFrame({"from_ms": list(starts), "to_ms": ends})
    parts = in_parts(store, TRADES, 0, ranges, most_bytes=MOST_BYTES)
    assert sum(part.tuples.height for part in parts) == len(rows)
    assert max(size_of(part.tuples) for part in parts) <= MOST_BYTES
    (whole,) = in_parts(store, TRADES, 0, ranges, most_bytes=NO_LIMIT)
    assert len(parts) <= 1 + 4 * size_of(whole.tuples) // MOST_BYTES
    assert len(parts) > 5


def test_a_request_of_one_group_reads_one_block_of_each_file_of_its_time(tmp_path: Path) -> None:
    rows = [
        {"key": f"{n}", "at": n, "product": f"product {n % 16}", "notional": n} for n in range(512)
    ]
    revisions = [{"op": rev.INSERT, "b": None, "a": row, "epoch": 0} for row in rows]
    for clustered, blocks in (((), 32), (("product",), 2)):
        path = tmp_path / f"by {len(clustered)}"
        store = Store(path, arc=TRADES, clustered=clustered, segment_rows=128)
        store.append(frame(TRADES, revisions), upto=0, resume=1)
        with mock.patch.object(store._segments, "_block", wraps=store._segments._block) as block:
            asked = pl.DataFrame({"from_ms": [128], "to_ms": [256], "product": ["product 3"]})
            assert store.as_of(0, asked)["notional"].to_list() == [*range(131, 256, 16)]
            assert block.call_count == blocks


def test_groups_are_found_in_their_own_ranges_in_a_copy_that_another_field_orders(
    tmp_path: Path,
) -> None:
    rows = [{"key": f"{n}", "at": n % 20, "product": "ab"[n % 2], "notional": n} for n in range(80)]
    revisions = [{"op": rev.INSERT, "b": None, "a": row, "epoch": 0} for row in rows]
    store = Store(tmp_path, arc=TRADES, clustered=("key",), segment_rows=80)
    store.append(frame(TRADES, revisions), upto=0, resume=1)
    asked = pl.DataFrame({"from_ms": [0, 8, 0], "to_ms": [4, 12, 20], "product": [*"aab"]})
    found = store.as_of(0, asked)
    assert set(found.filter(product="a")["at"]) == {0, 2, 8, 10}
    assert set(found.filter(product="b")["at"]) == {*range(1, 20, 2)}
    assert found.height == 4 * 4 + 40


def test_another_way_to_hash_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known, hash_rows = hashing.__wrapped__(), pl.DataFrame.hash_rows
    assert known == hashing.__wrapped__()
    monkeypatch.setattr(pl.DataFrame, "hash_rows", lambda self, seed=1: hash_rows(self, seed))
    assert known != hashing.__wrapped__()


@pytest.mark.parametrize("change", ["clustered", "hashing"])
def test_a_copy_in_another_order_is_read_again(tmp_path: Path, monkeypatch, change: str) -> None:
    store = Store(tmp_path, arc=TRADES, clustered=("product",), segment_rows=2)
    store.append(inserts(4, epoch=0), upto=0, resume=9)
    assert Store(tmp_path, arc=TRADES, clustered=("product",)).rebuilt is None
    if change == "hashing":
        monkeypatch.setattr(segments, "hashing", lambda: 1)
    clustered = ("key",) if change == "clustered" else ("product",)
    assert "another" in str(Store(tmp_path, arc=TRADES, clustered=clustered).rebuilt)


def test_append_refuses_epochs_already_complete_or_beyond_upto(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES)
    store.append(inserts(1, epoch=4), upto=4, resume=1)
    for epoch, upto in ((4, 5), (6, 5)):
        with pytest.raises(EpochOrderError, match=f"found {epoch} to {epoch}"):
            store.append(inserts(1, epoch=epoch), upto=upto, resume=2)
    with pytest.raises(EpochOrderError):
        store.append(inserts(0, epoch=0), upto=3, resume=2)
    assert (store.upto, store.as_of(4, None).height) == (4, 1)


def test_empty_append_moves_upto_but_not_what_a_new_life_resumes_from(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=2)
    store.append(inserts(2, epoch=0), upto=0, resume=10)
    store.append(inserts(1, epoch=1), upto=1, resume=20)
    store.append(inserts(0, epoch=0), upto=7, resume=30)
    assert (store.upto, store.resume) == (7, 10)
    again = Store(tmp_path, arc=TRADES, segment_rows=2)
    assert (again.upto, again.resume) == (0, 10)
    assert again.as_of(0, None).height == 2


def test_large_append_is_cut_into_segments_of_about_the_same_size(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    store.append(inserts(37, epoch=0), upto=0, resume=1)
    assert len(list(tmp_path.glob("segment-*.arrow"))) == 3
    assert store.as_of(0, None).height == 37


def replaced_over_and_over(store: Store, epoch_count: int) -> None:
    old: Tuple | None = None
    for epoch in range(epoch_count):
        new = trade(epoch, 1_000 - epoch, key="only")
        op = rev.REPLACE if old else rev.INSERT
        one = frame(TRADES, [{"op": op, "b": old, "a": new, "epoch": epoch}])
        store.append(one, upto=epoch, resume=epoch)
        old = new


def test_rewrite_frees_the_disk_once_half_of_the_copy_is_superseded(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=16)
    replaced_over_and_over(store, 400)
    before = size(tmp_path)
    store.raise_floor(100)
    assert size(tmp_path) == before
    store.raise_floor(390)
    assert size(tmp_path) < before / 8
    for _ in range(2):
        top = store.upto
        assert store.as_of(top, None)["notional"].to_list() == [top]
        store = Store(tmp_path, arc=TRADES, segment_rows=16)
        assert store.rebuilt is None
        assert store.floor == 390


def test_a_tail_that_is_sealed_early_joins_the_last_file_until_that_is_large(tmp_path):
    store, rows = Store(tmp_path / "copy", arc=TRADES, segment_rows=10), list[int]()
    for epoch in range(9):
        store.append(inserts(3, epoch=epoch), upto=epoch, resume=epoch)
        store.seal()
        rows.append(len(list((tmp_path / "copy").glob("segment-*"))))
        again = Store(tmp_path / "copy", arc=TRADES, segment_rows=10)
        assert (again.upto, again.resume) == (epoch, epoch)
        assert again.as_of(epoch, None).height == 3 * (epoch + 1)
    assert rows == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    store.append(inserts(0, epoch=9), upto=9, resume=9)
    store.seal()
    assert Store(tmp_path / "copy", arc=TRADES, segment_rows=10).resume == 9


def test_drop_before_removes_whole_segments_and_hides_the_rest_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    store.append(inserts(40, epoch=0), upto=0, resume=1)
    before = size(tmp_path)
    store.drop_before(25)
    assert sorted(store.as_of(0, None)["at"]) == list(range(25, 40))
    assert size(tmp_path) < before * 0.6
    again = Store(tmp_path, arc=TRADES)
    assert sorted(again.as_of(0, None)["at"]) == list(range(25, 40))


@pytest.mark.parametrize("clustered", [(), ("key",)], ids=["by time", "clustered"])
@pytest.mark.parametrize("segment_rows", [30, 1_000, 100_000])
def test_a_copy_is_flat_however_much_is_dropped(
    tmp_path: Path, segment_rows: int, clustered: tuple[str, ...]
) -> None:
    store = Store(tmp_path, arc=TRADES, clustered=clustered, segment_rows=segment_rows)
    counts = list[int]()
    for epoch in range(300):
        rows = [trade(n, 10 * epoch - 90 * (n == 0), key=f"{epoch}/{n}") for n in range(10)]
        made = [{"op": rev.INSERT, "b": None, "a": row, "epoch": epoch} for row in rows]
        store.append(frame(TRADES, made), upto=epoch, resume=epoch)
        store.drop_before(10 * epoch - 100)
        sealed = sum(segment.rows for segment in store._segments.manifest.segments)
        counts.append(sealed + sum(part.height for part in store._tail))
        assert len(store._segments.manifest.segments) < 20
    assert max(counts[30:]) <= 1.2 * max(counts[:30])
    assert store.as_of(299, None).height >= 100
    assert store.sealed >= 270  # so that readers of the topic do not wait for it


@pytest.mark.parametrize("identity", [("key",), ()])
def test_the_last_version_counts_where_the_topic_lacks_a_revision(tmp_path: Path, identity) -> None:
    arc = replace(TRADES, identity=identity)
    versions = [{"key": "k", "at": at, "product": "a", "notional": 1} for at in (50, 5)]
    told = [{"op": rev.INSERT, "b": None, "a": a, "epoch": e} for e, a in enumerate(versions)]
    store = Store(tmp_path, arc=arc)
    store.append(frame(arc, told[::-1]), upto=1, resume=9)
    assert shown(store.as_of(1, None)) == [repr(tuple(versions[1].values()))]
    store.settle(1)
    assert store.as_of(1, None, from_ms=20).is_empty(), "the first one lies elsewhere, and is gone"


def test_tuple_without_event_time_is_found_only_when_no_range_is_given(tmp_path: Path) -> None:
    arc = arc_of(
        {"key": "string", "at": "timestamp-millis?"}, identity=("key",), event_time="at", shift=-1
    )
    store = Store(tmp_path, arc=arc, segment_rows=2)
    rows = [{"key": "x", "at": None}, {"key": "y", "at": 5}]
    store.append(
        frame(arc, [{"op": rev.INSERT, "b": None, "a": r, "epoch": 0} for r in rows]),
        upto=0,
        resume=1,
    )
    assert store.as_of(0, None).height == 2
    every = pl.DataFrame({"from_ms": [-(10**15)], "to_ms": [10**15]})
    assert store.as_of(0, every)["key"].to_list() == ["y"]


@pytest.mark.parametrize("measured", [math.nan, -0.0])
def test_lone_double_that_names_or_groups_tuples_is_matched_by_value(
    tmp_path: Path, measured: float
) -> None:
    """Polars' merge join of sorted doubles, which single rows are, misses NaN = NaN."""
    arc = arc_of(
        {"measured": "double", "at": "timestamp-millis"},
        identity=("measured",),
        event_time="at",
        shift=0,
    )
    store = Store(tmp_path, arc=arc, segment_rows=1)
    one = {"measured": measured, "at": 5}
    for epoch, op, b, a in ((0, rev.INSERT, None, one), (1, rev.DELETE, one, None)):
        revisions = frame(arc, [{"op": op, "b": b, "a": a, "epoch": epoch}])
        store.append(revisions, upto=epoch, resume=epoch)
    asked = pl.DataFrame({"from_ms": [0], "to_ms": [9], "measured": [measured + 0.0]})
    for ranges in (asked, None):
        assert [store.as_of(epoch, ranges).height for epoch in (0, 1)] == [1, 0]


def test_arc_of_one_tuple_without_identity_is_folded(tmp_path: Path) -> None:
    arc = arc_of({"at": "timestamp-millis"}, identity=(), event_time="at", shift=0)
    store = Store(tmp_path, arc=arc, segment_rows=1)
    for epoch, (b, a) in enumerate(((None, {"at": 5}), ({"at": 5}, {"at": 6}))):
        op = rev.REPLACE if b else rev.INSERT
        revisions = frame(arc, [{"op": op, "b": b, "a": a, "epoch": epoch}])
        store.append(revisions, upto=epoch, resume=epoch)
    assert [store.as_of(epoch, None)["at"].to_list() for epoch in (0, 1)] == [[5], [6]]
