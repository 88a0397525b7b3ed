"""The log-structured map of states, against a plain dictionary."""

import random
from collections import Counter

import polars as pl
import pytest

from errata.spark_jobs import state_map
from errata.spark_jobs.state_map import PLACE, Cache, Cached, StateMap

SCHEMA = {
    "group": pl.String,
    "start": pl.Int64,
    PLACE: pl.Int32,
    "n": pl.Int64,
    "all": pl.List(pl.Int64),
}
NOTHING, KEYS = pl.DataFrame(schema=SCHEMA), ["group", "start"]
PLACES = {f"g{n}": random.Random(n).randrange(1 << 30) for n in range(200)}


class Store(dict):
    """Spark's store: what a task wrote can be undone."""

    def __init__(self):
        super().__init__()
        self.read, self.written = Counter(), 0

    def get(self, key):
        found = super().get(key)
        self.read[key] += 1
        return found

    def put(self, key, blob):
        self[key] = blob
        self.written += len(blob)

    def remove(self, key):
        self.pop(key, None)


def frame(rows):
    return pl.DataFrame(
        [(g, s, PLACES[g], n, [n] * (n % 3)) for (g, s), n in rows.items()], SCHEMA, orient="row"
    )


def rows(states):
    assert states.columns == list(SCHEMA)
    assert all(PLACES[row["group"]] == row[PLACE] for row in states.to_dicts())
    assert all(row["all"] == [row["n"]] * (row["n"] % 3) for row in states.to_dicts())
    assert not states.select(KEYS).is_duplicated().any()
    return {(row["group"], row["start"]): row["n"] for row in states.to_dicts()}


def all_kept(states):
    return pl.repeat(True, states.height, dtype=pl.Boolean, eager=True)


def later_than(start):
    return lambda states: states["start"] > start


@pytest.fixture
def small(monkeypatch):
    """Blocks and deltas of a few rows."""
    monkeypatch.setattr(state_map, "BLOCK_BYTES", 3_000)
    monkeypatch.setattr(state_map, "FOLD_BYTES", 2_000)


@pytest.mark.parametrize("seed", range(20))
def test_the_map_holds_what_a_dictionary_does_whatever_is_undone(small, seed):
    chance, store = random.Random(seed), Store()
    cache = Cache(chance.choice([0, 20_000, 1 << 30]))
    model, count = {}, chance.choice([3, 30, 200])
    for _ in range(chance.choice([10, 60])):
        before, undone = dict(store), chance.random() < 0.2
        states = StateMap(Cached(store, "job", cache), NOTHING, KEYS)
        after = {slab: dict(content) for slab, content in model.items()}
        for slab in chance.sample(range(-1, 2), chance.randint(1, 2)):
            content = after.setdefault(slab, {})
            new = {
                (f"g{chance.randrange(count)}", chance.randrange(3)): chance.randrange(1_000)
                for _ in range(chance.choice([0, 1, 20, 300]))
            }
            gone = chance.sample(sorted(content), min(len(content), chance.choice([0, 0, 1, 50])))
            gone = {key: content[key] for key in gone if key not in new}
            states.write(slab, frame(new), frame(gone).select(*KEYS, PLACE), kept=all_kept)
            content |= new
            for key in gone:
                del content[key]
            if chance.random() < 0.05:
                states.drop(slab)
                del after[slab]
        if undone:
            store.clear()
            store.update(before)
        else:
            model = after
        states = StateMap(Cached(store, "job", cache), NOTHING, KEYS)
        for slab in range(-1, 2):
            content = model.get(slab, {})
            assert rows(states.read(slab)) == content
            asked = {f"g{chance.randrange(count)}" for _ in range(3)}
            places = pl.Series([PLACES[g] for g in asked], dtype=pl.Int32)
            found = rows(states.read(slab, places))
            assert found == {key: n for key, n in content.items() if key[0] in asked}
            large = set(states.places(slab, lambda states: states["n"] > 500))
            assert large >= {PLACES[g] for (g, _), n in content.items() if n > 500}
        assert {slab for slab, content in model.items() if content} <= set(states.slabs)
    numbers = {key for key in store if key[1]} - {(-(1 << 63), 0)}
    counted = {(slab, blob.number) for slab in states.slabs for blob in states._index(slab).blobs}
    assert numbers == counted  # nothing is left behind


def test_what_is_no_longer_of_use_goes_when_deltas_are_folded(small):
    store = Store()
    states = StateMap(store, NOTHING, KEYS)
    for start in range(40):
        late = {(f"g{n}", start): n for n in range(20)}
        states.write(0, frame(late), NOTHING.select(*KEYS, PLACE), kept=later_than(start - 3))
    assert states.read(0).filter(pl.col("start") < 20).is_empty()
    assert len(rows(states.read(0)).keys() & {(f"g{n}", 39) for n in range(20)}) == 20


def test_a_change_of_few_rows_writes_few_bytes_and_a_warm_read_costs_indexes():
    store, cache, chance = Store(), Cache(1 << 30), random.Random(1)
    states = StateMap(Cached(store, "job", cache), NOTHING, KEYS)
    groups = {f"x{n}": chance.randrange(1 << 30) for n in range(200_000)}
    PLACES.update(groups)
    states.write(
        0,
        frame({(g, 0): 7 for g in chance.sample(sorted(groups), len(groups))}),
        frame({}).select(*KEYS, PLACE),
        kept=all_kept,
    )
    whole, store.written = store.written, 0
    assert len(states._index(0).blocks) > 1
    for _ in range(100):
        few = {(g, 0): chance.randrange(1_000) for g in chance.sample(sorted(groups), 200)}
        states.write(0, frame(few), frame({}).select(*KEYS, PLACE), kept=all_kept)
    assert store.written < whole
    store.read.clear()
    states.read(0, pl.Series([groups["x1"]], dtype=pl.Int32))
    assert set(store.read) == {(0, 0)}
    cold = StateMap(Cached(store, "job", Cache(0)), NOTHING, KEYS)
    store.read.clear()
    cold.read(0, pl.Series([groups["x1"]], dtype=pl.Int32))
    assert len(store.read) < 40


def test_a_cache_keeps_what_fits_and_makes_room_of_what_is_unused():
    cache = Cache(100)
    cache.put("a", bytes(60))
    cache.put("b", bytes(60))
    assert (cache.get("a"), cache.get("b")) == (bytes(60), None)
    for _ in range(Cache.UNUSED + 1):
        cache.get("c")
    cache.put("b", bytes(60))
    assert (cache.get("a"), cache.get("b"), cache.bytes) == (None, bytes(60), 60)
    cache.put("d", bytes(101))
    assert cache.get("d") is None
