"""Tuples that a user's function raises for: left out, told once, or the end of it."""

import re
from typing import Any

import polars as pl
import pytest

from errata import Network, Stream, hopping, python, sliding, tumbling
from errata.processors.aggregates.compensating import Compensating
from errata.processors.tasks.scope_run import BoxError
from errata.processors.wire.dead_letter import NO_RECORD, DeadLetter
from errata.testing import Driver

MODES = ("upstream", "downstream", "resident")


def source(net: Network) -> Stream:
    fields = {"key": "string", "at": "timestamp-millis", "desk": "string", "price": "long"}
    return net.source("trades", identity=["key"], event_time="at", keep="1d", fields=fields)


def tuple_(key: str, at: int, price: int, desk: str = "x") -> dict[str, Any]:
    return {"key": key, "at": at, "desk": desk, "price": price}


def insert(key: str, at: int, price: int, desk: str = "x") -> dict[str, Any]:
    return {"op": "insert", "after": tuple_(key, at, price, desk)}


def replace(key: str, at: int, price: int, desk: str = "x") -> dict[str, Any]:
    return {"op": "replace", "after": tuple_(key, at, price, desk)}


def delete(key: str) -> dict[str, Any]:
    return {"op": "delete", "before": {"key": key}}


class Brittle(Compensating):
    """A sum that does not take 13, and is not told where it is 100."""

    result = "long"
    parts = {"sum": "long"}  # noqa: RUF012

    def accumulate(self, states: Any, groups: Any, values: Any) -> Any:
        return self._moved(states, groups, values, 1)

    def compensate(self, states: Any, groups: Any, values: Any) -> Any:
        return self._moved(states, groups, values, -1)

    def _moved(self, states: Any, groups: Any, values: Any, sign: int) -> Any:
        if (values.to_series(0) == 13).any():
            raise ValueError("unlucky")
        rows = pl.DataFrame({"g": groups, "x": values.to_series(0) * sign}).group_by("g").sum()
        change = pl.repeat(0, states.height, dtype=pl.Int64, eager=True)
        return pl.DataFrame([states["sum"] + change.scatter(rows["g"], rows["x"])])

    def merge(self, one: Any, other: Any) -> Any:
        return one + other

    def emit(self, states: Any) -> Any:
        if (states["sum"] == 100).any():
            raise ValueError("a hundred")
        return states["sum"]


class Full(Brittle):
    """A sum that no group may have beyond 20: which tuple is too much depends on the others."""

    def _moved(self, states: Any, groups: Any, values: Any, sign: int) -> Any:
        made = super()._moved(states, groups, values, sign)
        if (made["sum"] > 20).any():
            raise ValueError("full")
        return made


def unlucky(price: int) -> int:
    return 1 // (price - 13)


def is_large(price: int) -> bool:
    return 100 // price > 0 and price > 10


def told(driver: Driver) -> list[tuple[int, str, str]]:
    """Return of each dead letter the epoch, the box and the key that it names."""
    found = [
        (letter.epoch, re.findall(r"'(\w+)'", letter.detail)[0], _key(letter))
        for letter in driver.dead_letters()
    ]
    assert all(letter.offset == NO_RECORD for letter in driver.dead_letters())
    return found


def _key(letter: DeadLetter) -> str:
    return re.search(r"; (?:tuple|result) \{(.*)\} of arc", letter.detail)[1]  # type: ignore[index]


# -------------------------------------------------------------------------------- stateless boxes


def test_a_map_makes_nothing_of_a_tuple_that_it_raises_for_and_tells_each_entering_once() -> None:
    net = Network("brittle")
    source(net).map("scaled", share=python(unlucky, "long", "price"))
    with Driver(net) as driver:
        for number, lines in enumerate(
            (
                [insert("a", 1, 13), insert("b", 1, 14)],
                [replace("a", 2, 13)],  # another one that it raises for: enters too
                [replace("b", 2, 13)],  # what was there leaves
                [replace("a", 2, 14)],  # what was left out comes
                [delete("b")],  # nothing is there to undo
            )
        ):
            driver.send("trades", lines)
            assert driver.close_epoch() == number + 1
        revisions = driver.revisions("scaled")
        assert [(r["epoch"], r["op"]) for r in revisions] == [
            (1, "insert"),
            (3, "delete"),
            (4, "insert"),
        ]
        assert [
            (epoch, box, re.findall(r"'key': '(\w)'", key)) for epoch, box, key in told(driver)
        ] == [
            (1, "scaled", ["a"]),
            (2, "scaled", ["a"]),
            (3, "scaled", ["b"]),
        ]
        (counts,) = [c for name, c in driver.counts().items() if "scaled.refused" in c]
        assert (counts["scaled.refused"], counts["dead_letters"]) == (3, 3)
        assert counts["refused.function raised"] == 3


def test_a_filter_does_not_pass_a_tuple_that_it_raises_for() -> None:
    net = Network("brittle")
    source(net).where("large", python(is_large, "boolean", "price"))
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 0), insert("b", 1, 5), insert("c", 1, 50)])
        driver.close_epoch()
        assert [row["key"] for row in driver.table("large")] == ["c"]
        assert [box for _, box, _ in told(driver)] == ["large"]


def test_no_later_output_of_a_route_has_a_tuple_that_an_earlier_one_raises_for() -> None:
    net = Network("brittle")
    large, none, small = source(net).route(
        large=python(is_large, "boolean", "price"),
        none=python(lambda price: 1 // (price - 50) > 5, "boolean", "price"),
        small="rest",
    )
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 0), insert("b", 1, 5), insert("c", 1, 50)])
        driver.close_epoch()
        found = [[row["key"] for row in driver.table(s.name)] for s in (large, none, small)]
        assert found == [["c"], [], ["b"]]
        assert [box for _, box, _ in told(driver)] == ["large"]  # 50 never gets to the second


def test_the_letter_holds_the_record_of_the_tuple_and_says_where() -> None:
    net = Network("brittle")
    source(net).map("scaled", share=python(unlucky, "long", "price"))
    with Driver(net) as driver:
        driver.send("trades", insert("a", 1, 13))
        driver.close_epoch()
        (letter,) = driver.dead_letters()
        assert (letter.epoch, letter.reason) == (1, "function raised")
        assert (letter.topic, letter.partition) == ("brittle.trades", 0)
        assert letter.detail == (
            f"box 'scaled', epoch 1: function python:{__name__}.unlucky, call: ZeroDivisionError: "
            "integer division or modulo by zero; arguments {'price': 13}; tuple {'key': 'a', 'at': "
            "1, 'desk': 'x', 'price': 13} of arc 'trades'"
        )
        codec = driver.shared.codec("trades")
        assert letter.value is not None
        found = codec._values.decode_each([letter.value[5:]]).frame
        assert found["after.key"].to_list() == ["a"]
        assert letter.key == codec.keys(pl.DataFrame({"key": ["a"]}))[0]


# -------------------------------------------------------------------------------- aggregates


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", [tumbling(10), hopping(10, every=5), sliding(10), None])
def test_an_aggregate_leaves_out_what_it_does_not_take_as_a_filter_would(
    window: Any, mode: str
) -> None:
    net = Network("brittle")
    trades = source(net)
    emit = "on_close" if window is not None else "on_update"
    options = {"window": window, "mode": mode, "keep": "1d", "emit": emit}
    trades.aggregate("sums", fields={"n": "count(*)", "sum": Brittle("price")}, **options)
    wanted = trades.where("wanted", "price <> 13")
    wanted.aggregate("wanted_sums", fields={"n": "count(*)", "sum": "sum(price)"}, **options)
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 4), insert("b", 1, 13), insert("c", 1, 5)])
        driver.send("trades", insert("late", 50, 1))
        driver.close_epoch()  # windows of 1 are closed
        for line in (replace("b", 1, 6), replace("b", 1, 13), delete("b")):
            driver.send("trades", line)
            driver.close_epoch()
        driver.end()
        revisions = driver.revisions("sums")
        assert len(revisions) >= 3
        assert revisions == driver.revisions("wanted_sums")
        assert [(epoch, box) for epoch, box, _ in told(driver)] == [(1, "sums"), (3, "sums")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", [tumbling(10), sliding(10)])
def test_a_result_that_emit_raises_for_is_left_out_until_it_changes(window: Any, mode: str) -> None:
    net = Network("brittle")
    total = source(net).aggregate(
        "sums", by=["desk"], window=window, mode=mode, keep="1d", sum=Brittle("price")
    )
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 40), insert("b", 1, 60), insert("c", 1, 8, "y")])
        driver.send("trades", insert("late", 50, 1))
        driver.close_epoch()
        assert [row["desk"] for row in driver.table(total.name) if row["window_end"] < 40] == ["y"]
        driver.send("trades", replace("b", 1, 61))
        driver.close_epoch()
        driver.send("trades", replace("b", 1, 60))
        driver.close_epoch()
        driver.send("trades", delete("b"))
        driver.close_epoch()
        found = [(r["epoch"], r["op"]) for r in driver.revisions(total.name)]
        assert found == [(1, "insert"), (2, "insert"), (3, "delete"), (4, "insert")]
        assert [(epoch, box) for epoch, box, _ in told(driver)] == [(1, "sums"), (3, "sums")]
        letter = driver.dead_letters()[0]
        assert (letter.topic, letter.value) == ("brittle.sums", None)
        assert "a hundred; result {'desk': 'x', 'window_start'" in letter.detail


@pytest.mark.parametrize("mode", ["adaptive", "resident"])
@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("window", [tumbling(rows=2), sliding(rows=2)])
def test_a_result_over_rows_is_refused_when_it_comes_and_when_it_changes(
    window: Any, emit: str, mode: str
) -> None:
    """The last tuple of a group joins it in the second epoch, and touches no other window.

    ::

        epoch   1          2             3             4
        price   40 60 70   40 60 70 80   40 61 70 80   60 40 70 80
        sums    100        100           101           100
    """
    net = Network("brittle")
    total = source(net).aggregate(
        "sums", by=["desk"], window=window, emit=emit, mode=mode, sum=Brittle("price")
    )
    with Driver(net) as driver:
        for lines in (
            [insert("a", 1, 40), insert("b", 2, 60), insert("c", 3, 70), insert("w", 90, 1, "y")],
            [insert("d", 4, 80)],
            [replace("b", 2, 61)],
            [replace("a", 1, 60), replace("b", 2, 40)],
        ):
            driver.send("trades", lines)
            driver.close_epoch()
        assert [(epoch, box) for epoch, box, _ in told(driver)] == [(1, "sums"), (4, "sums")]
        for letter in driver.dead_letters():
            assert (letter.topic, letter.value) == ("brittle.sums", None)
            assert "a hundred; result {'desk': 'x'" in letter.detail
        sums = [row["sum"] for row in driver.table(total.name) if row["desk"] == "x"]
        assert 150 in sums
        assert 100 not in sums


def test_a_tuple_that_a_window_of_rows_does_not_take_is_told_with_its_record() -> None:
    net = Network("brittle")
    source(net).aggregate("sums", window=sliding(rows=2), sum=Brittle("price"))
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 1), insert("b", 2, 13), insert("c", 3, 2)])
        driver.end()
        assert [row["sum"] for row in driver.table("sums")] == [1, 3]
        (letter,) = driver.dead_letters()
        assert (letter.topic, letter.epoch) == ("brittle.trades", 1)
        assert letter.value is not None


def test_a_lag_leaves_out_the_tuple_behind_the_one_that_it_raises_for() -> None:
    net = Network("brittle")
    trades = source(net)
    trades.lag("shares", by=["desk"], share=python(unlucky, "long", "price"))
    with Driver(net) as driver:
        for lines in (
            [insert("a", 1, 13), insert("b", 2, 14), insert("c", 3, 13, "y")],
            [insert("d", 3, 15)],  # the others of its group stay as they are
            [replace("b", 2, 13)],  # before d; itself it is still behind a
            [replace("a", 1, 14)],
            [delete("b")],
        ):
            driver.send("trades", lines)
            driver.close_epoch()
        assert [
            (epoch, box, re.findall(r"'key': '(\w)'", key)) for epoch, box, key in told(driver)
        ] == [
            (1, "shares", ["b"]),
            (3, "shares", ["b"]),
            (3, "shares", ["d"]),
        ]
        letter = driver.dead_letters()[0]
        assert "ZeroDivisionError" in letter.detail
        assert "; result {'key': 'b'} of arc 'shares'" in letter.detail
        found = {row["key"]: row["share"] for row in driver.table("shares")}
        assert found == {"a": None, "c": None, "d": 1}


def test_a_result_below_a_map_that_may_leave_it_out_is_not_fetched_from_there() -> None:
    net = Network("brittle")
    sums = source(net).aggregate("sums", window=tumbling(10), sum="sum(price)")
    sums.map("scaled", share=python(unlucky, "long", "sum"), keep="1d")
    with Driver(net) as driver:
        choice = driver.plan.choices["sums"]
        assert choice.mode == "upstream"
        assert "calls a Python function, which may leave results out" in choice.reason


# -------------------------------------------------------------------------------- loops


def down(price: int) -> int:
    """Return the next lower price down to 10."""
    if price == 13:
        raise ValueError("unlucky")
    return max(10, price - 1) if price > 9 else price


def test_a_loop_leaves_out_what_its_body_raises_for_and_tells_it_once() -> None:
    """Prices come down to 10, through 13."""
    net = Network("brittle")
    trades = source(net)
    net.iterate("low", trades, lambda x: x.map("less", price=python(down, "long", "price")))
    with Driver(net) as driver:
        for lines in (
            [insert("a", 1, 15), insert("b", 1, 12), insert("c", 1, 9)],
            [insert("d", 1, 13)],
            [replace("a", 2, 15)],  # another tuple that it raises for
            [replace("a", 2, 11)],
        ):
            driver.send("trades", lines)
            driver.close_epoch()
        assert [row["price"] for row in driver.table("low")] == [10, 10, 9]
        assert [
            (epoch, box, re.findall(r"'key': '(\w)'", key)) for epoch, box, key in told(driver)
        ] == [(1, "low", ["a"]), (2, "low", ["d"]), (3, "low", ["a"])]
        letter = driver.dead_letters()[0]
        assert letter.reason == "function raised"
        assert letter.detail.startswith("box 'low', epoch 1: in box 'less' of the loop: function ")
        assert "arguments {'price': 13}" in letter.detail
        codec = driver.shared.codec("low")
        assert letter.key == codec.keys(pl.DataFrame({"key": ["a"]}))[0]


def test_what_a_function_raises_for_in_the_last_round_has_one_letter() -> None:
    """It would not have settled in so many rounds, but that is no second reason."""
    net = Network("brittle")
    trades = source(net)
    body = {"price": python(down, "long", "price")}
    net.iterate("low", trades, lambda x: x.map("less", fields=body), rounds=2)
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 15), insert("b", 1, 18)])
        driver.close_epoch()
        assert driver.table("low") == []
        reasons = [letter.reason for letter in driver.dead_letters()]
        assert reasons == ["function raised", "refused by box"]


def test_a_letter_of_what_enters_a_loop_has_its_record_and_one_of_a_group_within_has_none() -> None:
    net = Network("brittle")
    trades = source(net)

    def body(x: Stream) -> Stream:
        whole = {"window": None, "emit": "on_update"}
        known = trades.map("known", price=python(unlucky, "long", "price"))
        sums = x.aggregate("sums", by=["desk"], fields={"sum": Brittle("price")}, **whole)
        found = x.lookup("one", known, on={"key": "key"}, alias="o", price="coalesce(o.price, 1)")
        return found.lookup("both", sums, on=["desk"], alias="o", price="coalesce(o.sum, price)")

    net.iterate("found", trades, body, rounds=1)
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 13), insert("b", 1, 100, "y")])
        driver.close_epoch()
        letters = [letter for letter in driver.dead_letters() if "of the loop" in letter.detail]
        found = {re.findall(r"in box '(\w+)'", letter.detail)[0]: letter for letter in letters}
        assert found["known"].value is not None
        assert (found["sums"].key, found["sums"].value) == (None, None)


# -------------------------------------------------------------------------------- the end of it


def test_what_only_fails_together_stops_with_the_box() -> None:
    net = Network("brittle")
    source(net).aggregate("sums", window=tumbling(10), sum=Full("price"))
    with Driver(net) as driver:
        driver.send("trades", [insert("a", 1, 12), insert("b", 2, 14)])
        with pytest.raises(BoxError, match=r"box 'sums', epoch 1: .*accumulate: raised .* full"):
            driver.close_epoch()


def test_an_aggregate_stops_where_that_is_asked_for_and_names_box_epoch_and_tuple() -> None:
    net = Network("brittle")
    source(net).aggregate("sums", window=tumbling(10), sum=Brittle("price"))
    with Driver(net, on_error="stop") as driver:
        driver.send("trades", insert("a", 1, 12))
        driver.close_epoch()
        driver.send("trades", [insert("b", 2, 14), insert("c", 3, 13)])
        with pytest.raises(BoxError, match=r"box 'sums', epoch 2: .*unlucky.*'key': 'c'") as raised:
            driver.close_epoch()
        assert (raised.value.box, raised.value.epoch) == ("sums", 2)
        assert driver.dead_letters() == []
        assert driver.tasks[-1].report.done == 1


def test_a_map_stops_where_that_is_asked_for() -> None:
    net = Network("brittle")
    source(net).map("scaled", share=python(unlucky, "long", "price"))
    with Driver(net, on_error="stop") as driver:
        driver.send("trades", insert("a", 1, 13))
        with pytest.raises(BoxError, match=r"box 'scaled', epoch 1: .*'price': 13.* on_error"):
            driver.close_epoch()
