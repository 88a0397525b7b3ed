"""A batch takes whole epochs, about as many records as it should, and always something."""

import random

import pytest

from errata.spark_jobs.limits import Found, limited


def find(logs, after, ends):
    """Return a search in partitions that are lists of epochs."""

    def search(partition, offset):
        log = logs[partition]
        for place in range(offset, ends[partition]):
            if log[place] > after:
                return Found(place, log[place])
        return None

    return search


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("ordered", [True, False])
def test_batches_take_every_record_once_in_whole_epochs(seed, ordered):
    chance = random.Random(seed)
    logs = [
        [chance.randrange(chance.choice([3, 50])) for _ in range(chance.choice([0, 5, 300]))]
        for _ in range(chance.randint(1, 4))
    ]
    logs = [sorted(log) for log in logs] if ordered else logs
    newest, most = max(map(max, filter(None, logs)), default=0), chance.choice([1, 7, 90, 400])
    after, taken = -1, []
    while after < newest:
        left = [[place for place, e in enumerate(log) if e > after] for log in logs]
        starts = {p: places[0] if places else len(logs[p]) for p, places in enumerate(left)}
        ends = {p: len(log) for p, log in enumerate(logs)}
        batch = limited(
            newest,
            starts,
            ends,
            most=most,
            search=find(logs, after, ends),
            in_order=lambda _: ordered,
        )
        assert after < batch.epoch <= newest
        read = [
            (p, place)
            for p, start in starts.items()
            for place in range(start, batch.ends[p])
            if after < logs[p][place] <= batch.epoch
        ]
        wanted = [
            (p, place)
            for p, log in enumerate(logs)
            for place, e in enumerate(log)
            if after < e <= batch.epoch
        ]
        assert read == wanted
        assert read or sum(map(len, left)) == 0
        if ordered and not batch.is_over and sum(map(len, left)) > most:
            assert len(read) <= most + len(logs)
        if batch.is_over and ordered:
            assert len({logs[p][place] for p, place in read}) == 1
        taken += read
        after = batch.epoch
    assert sorted(taken) == [(p, place) for p, log in enumerate(logs) for place in range(len(log))]


def test_there_is_no_search_where_everything_fits():
    def search(partition, offset):
        raise AssertionError

    batch = limited(9, {0: 5}, {0: 25}, most=20, search=search, in_order=bool)
    assert batch == (9, {0: 25}, False)
