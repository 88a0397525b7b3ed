"""Why a result has its values, where that is known beforehand."""

from itertools import pairwise

import polars as pl
import pytest

from errata import Network, tumbling
from errata.client.origin import MARGIN_MS, Origins
from errata.client.why import Explanation, Why
from errata.processors.boxes.matching import with_identities
from errata.schemas import revisions as frames
from errata.testing import Driver
from examples.renames import net as renames
from examples.renames import rename

FIELDS = {"key": "string", "at": "timestamp-millis", "size": "long"}
HOUR_MS = 3_600_000


def trade(key: str, at: int, size: int) -> dict:
    return {"key": key, "at": at, "size": size}


def tape(**more: object) -> tuple[Network, object]:
    net = Network("tape")
    source = net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", keep="10y", **more
    )
    return net, source


def explained(driver: Driver, arc: str, history=None, **key: object) -> list[Explanation]:
    """Explain a tuple of a driver's arc, from the last revision to the first."""

    def known(name: str, wanted: pl.DataFrame | None) -> pl.DataFrame:
        found = driver._history(name)
        return found if wanted is None else with_identities(arcs[name], found, wanted)

    arcs = driver.plan.topology.arcs
    fields = arcs[arc].fields
    wanted = pl.DataFrame({n: pl.Series([v], dtype=fields[n].dtype) for n, v in key.items()})
    view = driver.shared.view
    why = Why(
        driver.plan,
        arc,
        wanted,
        history or known,
        watermark=lambda scope: view.watermark(f"{scope}.0", upto=driver.epoch),
    )
    return list(why.explanations(why.revisions()))


def keys(revisions: pl.DataFrame, name: str = "key") -> list[str]:
    return frames.identities(revisions, [name])[name].to_list()


def test_a_chain_of_a_loop_is_part_of_what_a_result_is_made_of():
    with Driver(renames) as driver:
        for old, new in (("A", "B"), ("B", "C"), ("C", "D"), ("X", "Y")):
            driver.send("renames", {"op": "insert", "after": rename(old, new)})
        driver.close_epoch()
        driver.send(
            "renames", {"op": "replace", "before": rename("C", "D"), "after": rename("C", "E")}
        )
        driver.close_epoch()
        last, first = explained(driver, "today", old="A")
    assert keys(last.causes["renames"], "old") == ["C"]
    assert [sorted(side["old"]) for side in last.inputs["renames"]] == [["A", "B", "C"]] * 2
    assert sorted(keys(first.causes["renames"], "old")) == ["A", "B", "C"]


def test_a_lag_is_made_of_a_tuple_and_the_one_before():
    net, trades = tape()
    trades.lag("before", by=[], was="size")
    with Driver(net) as driver:
        for number in range(4):
            driver.send("trades", {"op": "insert", "after": trade(f"k{number}", number, number)})
        driver.close_epoch()
        (told,) = explained(driver, "before", key="k2")
    assert sorted(told.inputs["trades"][1]["key"]) == ["k1", "k2"]


def test_a_task_that_was_rebuilt_took_several_epochs_as_one():
    net, trades = tape()
    trades.aggregate("sums", by=[], window=tumbling("1h"), keep="10y", total="sum(size)")
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": trade("a", 1, 1)})
        driver.send("trades", {"op": "insert", "after": trade("late", 5 * HOUR_MS, 0)})
        driver.close_epoch()
        for key in ("b", "c"):
            driver.send("trades", {"op": "insert", "after": trade(key, 2, 2)})
            driver.close_epoch()
        arcs = driver.plan.topology.arcs

        def coalesced(name: str, wanted: pl.DataFrame | None) -> pl.DataFrame:
            found = driver._history(name)
            if name == "sums":
                late = found.filter(pl.col("epoch") > 1)
                net_ = frames.coalesced(late, arcs[name].identity, list(arcs[name].fields))
                told = late[-1:].select("task", "attempt", "epoch", "offset")
                found = pl.concat([found.filter(pl.col("epoch") == 1), net_.hstack(told)])
            return found if wanted is None else with_identities(arcs[name], found, wanted)

        last, first = explained(driver, "sums", history=coalesced, window_start=0)
    assert (last.since, last.upto) == ({"trades": 1}, {"trades": 3})
    assert sorted(keys(last.causes["trades"])) == ["b", "c"]
    assert last.ways == {}
    assert sorted(keys(first.causes["trades"])) == ["a"]


def test_a_result_that_waited_names_the_tuple_that_moved_the_watermark():
    net, trades = tape(lateness="1m")
    trades.aggregate("sums", by=[], window=tumbling("1h"), keep="10y", total="sum(size)")
    with Driver(net) as driver:
        for key, at in (("a", 1), ("b", HOUR_MS), ("c", HOUR_MS + 60_001)):
            driver.send("trades", {"op": "insert", "after": trade(key, at, 1)})
            driver.close_epoch()
        (told,) = explained(driver, "sums", window_start=0)
    assert told.causes == {}
    assert told.closed == (HOUR_MS - 60_000, HOUR_MS + 1)
    assert keys(told.moved_by["trades"]) == ["c"]
    assert told.inputs["trades"][1]["key"].to_list() == ["a"]


def test_where_either_of_two_would_do_one_is_named_that_is_enough():
    net, trades = tape()
    trades.aggregate(
        "most", by=[], window=tumbling("1h"), emit="on_update", keep="10y", most="max(size)"
    )
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": trade("a", 1, 1)})
        driver.close_epoch()
        for key in ("b", "c"):
            driver.send("trades", {"op": "insert", "after": trade(key, 2, 7)})
        driver.close_epoch()
        last, first = explained(driver, "most", window_start=0)
    assert (last.are_enough, len(keys(last.causes["trades"]))) == (True, 1)
    assert first.are_enough is False


@pytest.fixture
def flips():
    """A trade whose size goes from 1 to 2, back and forth, one revision an epoch."""
    net, _ = tape()
    with Driver(net) as driver:
        sizes = [1, 2, 1, 2]
        driver.send("trades", {"op": "insert", "after": trade("a", 1, 1)})
        driver.close_epoch()
        for before, after in pairwise(sizes):
            driver.send("trades", {"op": "insert", "after": trade(f"x{driver.epoch}", 1, 9)})
            sides = {"before": trade("a", 1, before), "after": trade("a", 1, after)}
            driver.send("trades", {"op": "replace", **sides})
            driver.close_epoch()
        yield driver


def origins(driver: Driver) -> list[int | None]:
    """Return the offsets of the records behind the revisions of the trade."""
    source = driver.plan.topology.sources["trades"]
    codec = driver.shared.codec("trades")
    own = with_identities(source.arc, driver._history("trades"), pl.DataFrame({"key": ["a"]}))
    found = Origins(driver.cluster, source, codec).of(own)
    return [None if origin is None else origin.offset for origin in found]


def test_each_revision_has_its_own_record(flips):
    assert origins(flips) == [0, 2, 4, 6]


def test_records_are_looked_for_from_the_start_if_their_time_is_wrong(flips, monkeypatch):
    asked = []

    def offset_at(source, time_ms):
        asked.append(time_ms)
        return 5

    monkeypatch.setattr(flips.cluster, "offset_at", offset_at)
    assert origins(flips) == [0, 2, 4, 6]
    assert asked == [50 - MARGIN_MS]
