"""Real feeds in every mode: the same revisions, and what is left is a recomputation's."""

from collections.abc import Iterable, Iterator
from itertools import islice

import pytest

from errata.testing import Driver
from tests.feeds.feeds import FEEDS, MODES

LINES_AN_EPOCH = 2_000
NAMES = ["flights", pytest.param("gdp", marks=pytest.mark.unshipped)]


def batched(lines: Iterable, count: int) -> Iterator[list]:
    left = iter(lines)
    while batch := list(islice(left, count)):
        yield batch


def in_order(rows, names):
    return sorted(rows, key=lambda row: [row[name] for name in names])


@pytest.mark.parametrize("name", NAMES)
def test_a_feed_in_every_mode_gives_the_same_revisions_and_a_recomputations_results(name):
    feed = FEEDS[name]
    if not feed.file.exists():
        pytest.skip(f"{feed.file.name} is not there")
    with Driver(feed.network()) as driver:
        (source,) = driver.plan.topology.sources
        for lines in batched(feed.lines(), LINES_AN_EPOCH):
            driver.send(source, lines)
            driver.close_epoch()
        driver.end()
        assert driver.counts()[f"ingest.{source}.0"]["read"] == feed.count
        assert driver.dead_letters() == []
        told = {mode: driver.revisions(mode) for mode in MODES}
        identity = driver.plan.topology.arcs["up"].identity
        tables = {mode: driver.table(mode) for mode in MODES}
        counts = driver.counts()
    assert len(told["up"]) > len(tables["up"])  # something was revised
    for mode in ("down", "res"):
        for one, other in zip(told["up"], told[mode], strict=True):
            assert one == other
    wanted = in_order(feed.truth(feed.left()), identity)
    assert in_order(tables["up"], identity) == wanted
    assert tables["down"] == tables["res"] == tables["up"]
    assert counts["down.0"]["down.fetched"] > 0
    assert counts["up.0"]["up.replayed"] > 0
