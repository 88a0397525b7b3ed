"""Damage, a full disk and foreign files of a copy are noticed, and nothing wrong is answered."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from errata.sweepers import segments
from errata.sweepers.segments import DamagedCopyError, StoreError
from errata.sweepers.store import Store
from tests.damaging import flipped, shortened, zeroed
from tests.sweepers.copies import TOTALS, TRADES, full_after, inserts

pytestmark = pytest.mark.usefixtures("small_blocks")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    path.write_bytes(b"\x07" * path.stat().st_size)


def made_a_folder(path: Path) -> None:
    path.unlink()
    (path / "more").mkdir(parents=True)


@pytest.mark.parametrize(
    ("victim", "damage"),
    [
        ("manifest.json", made_a_folder),
        ("segment-1.arrow", made_a_folder),
        ("manifest.json", cut_short),
        ("manifest.json", emptied),
        ("manifest.json", overwritten),
        ("manifest.json", Path.unlink),
        ("segment-1.arrow", cut_short),
        ("segment-1.arrow", emptied),
        ("segment-1.arrow", Path.unlink),
    ],
)
def test_damaged_copy_is_emptied_and_says_so(
    tmp_path: Path, damage: Callable[[Path], None], victim: str
) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    store.append(inserts(40, epoch=0), upto=0, resume=9)
    mine = tmp_path / "notes.txt"
    mine.write_text("not the store's")
    damage(tmp_path / victim)
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    assert store.rebuilt is not None
    assert "damaged" in store.rebuilt
    assert (store.upto, store.resume, store.floor) == (-1, 0, 0)
    assert list(tmp_path.iterdir()) == [mine]
    store.append(inserts(40, epoch=0), upto=0, resume=9)
    assert Store(tmp_path, arc=TRADES).rebuilt is None


@pytest.mark.parametrize("damage", ["the folder is gone", "the manifest is a folder"])
def test_a_folder_that_is_damaged_while_it_is_open_is_noticed_by_the_next_write(
    tmp_path: Path, damage: str
) -> None:
    store = Store(tmp_path / "copy", arc=TRADES, segment_rows=10)
    store.append(inserts(40, epoch=0), upto=0, resume=9)
    if damage == "the folder is gone":
        shutil.rmtree(tmp_path / "copy")
    else:
        made_a_folder(tmp_path / "copy" / "manifest.json")
    with pytest.raises(DamagedCopyError, match=r"manifest\.json"):
        store.append(inserts(40, epoch=1), upto=1, resume=99)


def test_copy_of_another_arc_is_emptied_and_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=2)
    store.append(inserts(4, epoch=0), upto=0, resume=9)
    store = Store(tmp_path, arc=TOTALS)
    assert store.rebuilt == "it is a copy of another arc or of another version of this one"
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_interrupted_write_are_removed_and_do_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=2)
    store.append(inserts(4, epoch=0), upto=0, resume=9)
    whole = (tmp_path / "segment-0.arrow").read_bytes()
    (tmp_path / "segment-9.arrow").write_bytes(whole)
    (tmp_path / "segment-10.arrow.part").write_bytes(whole[:20])
    store = Store(tmp_path, arc=TRADES)
    assert (store.rebuilt, store.as_of(0, None).height) == (None, 4)
    assert len(list(tmp_path.glob("segment-*"))) == 2


@pytest.mark.parametrize("writes_before_full", range(4))
def test_full_disk_is_told_and_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes_before_full: int
) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    store.append(inserts(10, epoch=0), upto=0, resume=1)
    files = sorted(tmp_path.iterdir())
    store.append(inserts(5, epoch=1), upto=1, resume=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_after(writes_before_full))
        with pytest.raises(StoreError, match="No space left on device; free space"):
            store.append(inserts(30, epoch=2), upto=2, resume=3)
    assert sorted(tmp_path.iterdir()) == files
    assert (store.upto, store.resume, store.as_of(1, None).height) == (1, 1, 15)
    store.append(inserts(30, epoch=2), upto=2, resume=3)
    assert Store(tmp_path, arc=TRADES).as_of(2, None).height == 45


@pytest.mark.parametrize("name", [b"upto", b"resume", b"floor", b"oldest_ms", b"rows"])
def test_a_changed_digit_of_the_manifest_is_noticed(tmp_path: Path, name: bytes) -> None:
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    store.append(inserts(60, epoch=0), upto=0, resume=9)
    manifest = tmp_path / "manifest.json"
    before = manifest.read_bytes()
    manifest.write_bytes(re.sub(b'("%s":-?)[0-9]' % name, rb"\g<1>7", before, count=1))
    assert manifest.read_bytes() != before
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    assert store.rebuilt == (
        "it is damaged: manifest.json: it has another checksum, or none (an older version wrote it)"
    )


def often_one_bit(path: Path, rng: random.Random) -> None:
    flipped(path, rng, (1, 1, 3, 20))


def scrub_all(store: Store) -> None:
    for _ in range(40):  # more than there are blocks
        store.scrub()


@pytest.mark.parametrize("number", range(50))
@pytest.mark.parametrize("is_running", [True, False])
def test_random_damage_is_noticed_or_without_effect(
    tmp_path: Path, number: int, is_running: bool
) -> None:
    rng = random.Random(number)
    store = Store(tmp_path, arc=TRADES, segment_rows=10)
    store.append(inserts(60, epoch=0), upto=0, resume=9)
    whole = store.as_of(0, None).sort("key")
    victim = rng.choice(sorted(tmp_path.iterdir()))
    before = victim.read_bytes()
    rng.choice([often_one_bit, zeroed, shortened])(victim, rng)
    is_damaged = victim.read_bytes() != before
    if not is_running:
        segments._CACHE._frames.clear()
        store = Store(tmp_path, arc=TRADES, segment_rows=10)
        if store.rebuilt is not None:
            assert is_damaged
            return
    if is_damaged and victim.name != "manifest.json":
        with pytest.raises(DamagedCopyError, match=victim.name):
            scrub_all(store)
    with suppress(DamagedCopyError):
        assert store.as_of(0, None).sort("key").equals(whole)


def test_blocks_of_all_copies_of_a_process_are_bounded(tmp_path: Path) -> None:
    cache = segments.Cache(100)
    block = [
        segments.Block(0, size, n, 0, 0, (0, 0)) for n, size in enumerate([40, 40, 40, 500, 10])
    ]
    reads = []

    def read(number: int) -> pl.DataFrame:
        reads.append(number)
        return pl.DataFrame({"n": [number]})

    for number in (0, 1, 0, 2, 0, 1, 3, 4, 3):
        assert cache.get(tmp_path, block[number], lambda n=number: read(n))["n"].item() == number
    assert reads == [0, 1, 2, 1, 3, 4, 3]
