"""Programs that read: tables with exact types and choices, epochs as they come, histories drawn."""

import asyncio
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import errata
from errata import Stream
from errata.cli import app as commands
from errata.client.changes import Changes
from errata.client.reading import UnknownFieldError
from errata.deploy.deployment import UnknownNameError
from errata.testing import Driver
from tests.errata.cli.test_tail import figure, price

WINDOW = datetime(1970, 1, 1, 1, 40, tzinfo=UTC)


@pytest.fixture
def arc(driver: Driver, monkeypatch: pytest.MonkeyPatch):
    """Returns an arc of the network in memory."""
    found = commands.open_deployment("tape.py")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "memory")
    monkeypatch.setattr("errata.client.reading.open_network", lambda network, place: found)
    monkeypatch.setattr(type(found.cluster), "close", lambda self: None)
    from errata.settings.loading import load

    network = load("tape.py")
    return lambda name: Stream(network, name)


def test_a_table_has_exact_types_in_arrow_polars_and_pandas(driver: Driver, arc) -> None:
    figure(driver)
    table = errata.read(arc("sums"))
    typed = table.to_polars()
    assert typed.schema["window_start"] == pl.Datetime("us", "UTC")
    assert isinstance(typed.schema["total"], pl.Decimal)
    assert len(table) == typed.height == len(table.tuples)
    row = typed.filter(pl.col("window_start") == WINDOW).to_dicts()[0]
    assert (row["symbol"], row["total"], row["n"]) == ("IBM", Decimal("77.00"), 3)
    assert table.to_arrow().schema.field("total").type == pa.decimal128(19, 2)
    assert list(table.to_pandas()["symbol"]) == ["IBM"] * len(table)


def test_a_table_can_be_read_in_part(driver: Driver, arc) -> None:
    figure(driver)
    driver.send("prices", {"op": "insert", "after": price("b", 300, 5) | {"symbol": "AAPL"}})
    driver.close_epoch()
    prices = arc("prices")

    def keys(**where: object) -> list[str]:
        return [t["key"] for t in errata.read(prices, where=where).tuples]

    assert (keys(symbol="AAPL"), keys(price=Decimal("30.00"))) == (["b"], ["105"])
    assert errata.read(prices, where={"symbol": None}).tuples == []
    hour = errata.read(prices, since="1970-01-01T02:00", until=datetime(1970, 1, 1, 3)).tuples
    assert sorted(t["key"] for t in hour) == ["120", "135"]
    (window,) = errata.read(arc("sums"), where={"symbol": "IBM", "window_start": WINDOW}).tuples
    assert window["total"] == 77
    with pytest.raises(
        UnknownFieldError, match="no field 'colour'; it has: key, at, symbol, price"
    ):
        errata.read(prices, where={"colour": 1})


def test_epochs_come_whole_one_by_one(driver: Driver, arc) -> None:
    figure(driver)
    with errata.follow(arc("sums"), since="beginning") as changes:
        found = iter(changes)
        first, second = next(found), next(found)
        assert (first.epoch, second.epoch, second.at_ms) == (1, 2, 100)
        assert {r["op"] for r in first.revisions} == {"insert"}
        assert [r["after"]["total"] for r in second.revisions] == [77, 59]
        assert len(second) == 2
        typed = second.to_polars()
        assert typed["op"].to_list() == ["replace", "replace"]
        assert typed["before"].struct.field("total").to_list() == [
            Decimal("80.00"),
            Decimal("62.00"),
        ]
        assert first.to_polars()["before"].null_count() == len(first)
        was, now = price("120", 120, 22), price("120", 120, 21)
        driver.send("prices", {"op": "replace", "before": was, "after": now})
        driver.close_epoch()
        assert next(found).epoch == 3


def test_it_begins_with_what_is_new_or_at_a_time(driver: Driver, arc) -> None:
    figure(driver)
    with errata.follow(arc("prices")) as new, errata.follow(arc("prices"), since=50) as later:
        assert next(iter(later)).epoch == 2
        driver.send("prices", {"op": "insert", "after": price("n", 300, 5)})
        driver.close_epoch()
        assert [r["after"]["key"] for r in next(iter(new)).revisions] == ["n"]


def test_it_ends_when_it_is_closed_also_while_it_waits(driver: Driver, arc) -> None:
    changes = errata.follow(arc("sums"))
    waiting = threading.Thread(target=lambda: list(changes))
    waiting.start()
    changes.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert list(changes) == []
    changes.close()


def test_it_does_not_block_a_loop(driver: Driver, arc) -> None:
    figure(driver)

    async def first() -> tuple[int, int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        with errata.follow(arc("sums"), since="beginning") as changes:
            seen = 0
            async for change in changes:
                seen = change.epoch
                if seen == 2:
                    break
            await asyncio.sleep(0.02)
        counting.cancel()
        return seen, turns

    seen, turns = asyncio.run(first())
    assert seen == 2
    assert turns > 1


def test_an_arc_without_a_topic_is_refused(arc) -> None:
    for ask in (errata.follow, errata.read, lambda a: errata.plot(a, "n")):
        with pytest.raises(UnknownNameError, match="has no arc 'none'"):
            ask(arc("none"))
    assert isinstance(errata.follow(arc("sums")), Changes)


def test_a_history_is_drawn_with_what_was_emitted_first(
    driver: Driver, arc, tmp_path: Path
) -> None:
    figure(driver)
    drawn = errata.plot(arc("sums"), "total", where={"symbol": "IBM"})
    corrected = {(p.at_ms // 60_000, p.first, p.now) for p in drawn.corrected}
    assert corrected == {(100, 80, 77), (120, 62, 59)}
    drawn.save(tmp_path / "total.svg")
    text = (tmp_path / "total.svg").read_text()
    assert "total of sums" in text
    assert "2 corrected" in text
    assert text.count("<circle") == len(drawn.points) + 2
    assert errata.plot(arc("sums"), "n", where={"symbol": "none"})._repr_svg_().startswith("<svg")
    with pytest.raises(UnknownFieldError, match=r"'symbol' of arc 'sums' is string, .* n"):
        errata.plot(arc("sums"), "symbol")
