"""What browsers are told: all of it at first, then what has changed, and a sample of many."""

import json
from typing import Any

import pytest

from errata.page import live as module
from errata.page.live import Live
from errata.processors.plan.deployed import NewVersionError
from errata.testing import Driver
from errata.topics.cluster import ClusterError, LostOffsetError, TopicPartition
from tests.errata.cli.test_tail import figure, price


def told(live: Live) -> dict[str, Any]:
    """Look, and return the next message."""
    last, _ = live.messages(None)
    live.look(wait_s=0)
    live.tell()
    _, (text,) = live.messages(last)
    return json.loads(text)


def whole(live: Live) -> dict[str, Any]:
    _, (text,) = live.messages(None)
    return json.loads(text)


def test_a_correction_is_told_with_both_sides_its_age_and_what_was_looked_back_for(
    driver: Driver, live: Live
) -> None:
    for at, amount in ((105, 30), (115, 25), (120, 25), (135, 37), (300, 1)):
        driver.send("prices", {"op": "insert", "after": price(f"{at}", at, amount)})
    driver.close_epoch()
    first = told(live)
    assert first["corrections"] == {"rows": [], "left_out": 0, "seen": 0}  # windows that close
    was, now = price("120", 120, 25), price("120", 120, 22)
    driver.send("prices", {"op": "replace", "before": was, "after": now})
    driver.close_epoch()
    found = told(live)["corrections"]
    assert found["seen"] == 3  # what the filter lets pass, and two windows
    row = next(r for r in found["rows"] if "01:40" in r["after"].get("window_start", ""))
    assert (row["arc"], row["op"], row["epoch"], row["at_ms"]) == ("sums", "replace", 2, 100)
    assert (row["before"]["total"], row["after"]["total"]) == ("80.00", "77.00")
    assert row["key"] == ["symbol=IBM", "window_start=1970-01-01 01:40:00"]
    assert row["identity"] == ["symbol", "window_start"]
    assert row["age_ms"] == (300 - 130) * 60_000
    assert (row["ways"], row["results"]) == ({"fetched": 2}, 2)
    was, now = now, price("120", 120, 21)
    driver.send("prices", {"op": "replace", "before": was, "after": now})
    driver.close_epoch()
    rows = [r for r in told(live)["corrections"]["rows"] if r["arc"] == "sums"]
    assert [(r["ways"], r["results"]) for r in rows] == [({"fetched": 2}, 2)] * 2  # no running sum


def test_a_result_of_a_window_that_had_closed_without_one_is_a_correction(
    driver: Driver, live: Live
) -> None:
    figure(driver)
    told(live)
    late = {"key": "late", "at": 105 * 60_000, "symbol": "AAPL", "price": 1}
    driver.send("prices", {"op": "insert", "after": late})
    driver.close_epoch()
    found = told(live)["corrections"]["rows"]
    assert {(row["arc"], row["op"], row["before"]) for row in found} >= {("sums", "insert", None)}


def test_only_what_has_changed_is_told_and_all_of_it_to_who_comes_later(
    driver: Driver, live: Live
) -> None:
    figure(driver)
    first = told(live)
    assert set(first["tasks"]) == {"ingest.prices.0", "prices.0"}
    assert {"prices", "sums", "plain", "counts"} == set(first["arcs"])
    again = told(live)
    assert "tasks" not in again or all("rate" in task for task in again["tasks"].values())
    assert "network" not in again
    now = whole(live)
    assert (now["whole"], now["network"], now["newest_epoch"]) == (True, "figure", 2)
    assert now["tasks"]["ingest.prices.0"]["read"] == 6
    assert len(now["corrections"]["rows"]) == now["corrections"]["seen"] == 3


def test_who_has_missed_messages_is_told_everything_again(driver: Driver, live: Live) -> None:
    last, _ = live.messages(None)
    for _ in range(module._TICKS_KEPT + 1):
        live.tell()
    _, (text,) = live.messages(last)
    assert json.loads(text)["whole"]
    newest, _ = live.messages(None)
    assert live.messages(newest) == (newest, [])


def test_of_many_corrections_the_newest_are_told_with_their_number(
    driver: Driver, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SHOWN", 1)
    figure(driver)
    told(live)
    was, now = price("120", 120, 22), price("120", 120, 21)
    driver.send("prices", {"op": "replace", "before": was, "after": now})
    driver.close_epoch()
    found = told(live)["corrections"]
    assert [row["arc"] for row in found["rows"]] == ["plain", "sums"]
    assert (found["left_out"], found["seen"]) == (1, 6)
    assert found["rows"][1]["after"]["total"] == "58.00"


def test_values_are_texts_that_can_be_shown_and_long_ones_are_cut(
    driver: Driver, live: Live
) -> None:
    symbol = "\u202egnp.exe\x1b[2J" + "x" * 300
    for epoch, amount in enumerate((1, 2)):
        row = {"key": "a", "at": 105 * 60_000, "symbol": symbol, "price": amount}
        old = {**row, "price": 1}
        line = (
            {"op": "replace", "before": old, "after": row}
            if epoch
            else {"op": "insert", "after": row}
        )
        driver.send("prices", line)
        driver.send("prices", {"op": "insert", "after": price(f"z{epoch}", 300, 1)})
        driver.close_epoch()
        found = [r for r in told(live)["corrections"]["rows"] if r["arc"] == "sums"]
    shown = found[0]["after"]["symbol"]
    assert shown.startswith("\\u202egnp.exe\\x1b[2Jx")
    assert shown.endswith("... (112 more characters)")
    assert found[0]["key"][0] == f"symbol={symbol}"  # links need the value itself


def test_refusals_are_counted_by_reason(driver: Driver, live: Live) -> None:
    driver.send("prices", ['{"op": "insert"', '{"op": "delete", "before": {"key": "none"}}'])
    driver.close_epoch()
    assert told(live)["refused"] == {"undecodable": 1, "unknown identity": 1}


def test_it_ends_when_another_version_is_deployed(
    driver: Driver, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(live.follower.progress), "version", 2)
    with pytest.raises(NewVersionError, match="the page of version 1 ends"):
        live.look(wait_s=0)
    live.run()
    assert isinstance(live.failure, NewVersionError)
    assert live.is_over


def test_it_goes_on_where_records_were_lost(
    driver: Driver, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    place = TopicPartition(live.deployment.plan.deployment.topic("sums"), 0)
    turns = iter([LostOffsetError(place, 5), ClusterError("no broker answers"), None])
    look = Live.look

    def looks(self: Live, *, wait_s: float) -> None:
        error = next(turns)
        if error is not None:
            raise error
        look(self, wait_s=wait_s)
        self.end()

    monkeypatch.setattr(Live, "look", looks)
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    figure(driver)
    followed, last = live.follower, live.messages(None)[0]
    live.run()
    assert live.failure is None
    assert live.follower is not followed
    _, texts = live.messages(last)
    assert [json.loads(text).get("trouble") for text in texts] == ["no broker answers", None]
