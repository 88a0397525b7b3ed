"""Loops as a user declares them: what they give over time, and what is refused."""

import json

import pytest

from errata import Network, NetworkError, Stream, tumbling
from errata.cli.explain import explanation
from errata.processors.compile.compiler import compile_network
from errata.testing import Driver

TRADES = {"key": "string", "at": "timestamp-millis", "symbol": "string", "size": "long"}
RENAMES = {"old": "string", "at": "timestamp-millis", "new": "string"}
TODAY = "coalesce(renames.new, {field})"


def sources(*, keep="1d", **options):
    net = Network("desk")
    given = {"event_time": "at", "keep": keep}
    renames = net.source("renames", fields=RENAMES, identity=["old"], **given, **options)
    trades = net.source("trades", fields=TRADES, identity=["key"], **given, **options)
    return net, renames, trades


def over_renames(**options):
    """Renames go round; trades look up what they come to."""
    net, renames, trades = sources()
    text = TODAY.format(field="new")
    today = net.iterate(
        "today",
        renames,
        lambda x: x.lookup("next", renames, on={"new": "old"}, new=text),
        **options,
    )
    text = "coalesce(today.new, symbol)"
    daily(trades.lookup("named", today, on={"symbol": "old"}, symbol=text))
    return net


def over_trades(**options):
    """Trades go round themselves."""
    net, renames, trades = sources()
    text = TODAY.format(field="symbol")
    daily(
        net.iterate(
            "named",
            trades,
            lambda x: x.lookup("next", renames, on={"symbol": "old"}, symbol=text),
            **options,
        )
    )
    return net


def daily(named):
    named.aggregate("totals", by=["symbol"], window=tumbling(10), traded="sum(size)", keep="1d")


def put(driver, source, *after, op="insert"):
    side = "before" if op == "delete" else "after"
    driver.send(source, [{"op": op, side: t} for t in after])


def rename(old, new):
    return {"old": old, "at": 0, "new": new}


def traded(driver):
    return {row["symbol"]: row["traded"] for row in driver.table("totals")}


@pytest.fixture(params=[over_renames, over_trades])
def driver(request):
    with Driver(request.param()) as found:
        for number, symbol in enumerate("ABCDE"):
            trade = {"key": symbol, "at": number, "symbol": symbol, "size": 10**number}
            put(found, "trades", trade)
        put(found, "renames", rename("A", "B"), rename("B", "C"), rename("C", "D"))
        found.end()
        assert traded(found) == {"D": 1111, "E": 10000}
        found.revisions("totals")
        yield found


def test_a_corrected_rename_revises_closed_totals_of_the_whole_chain(driver):
    put(driver, "renames", rename("C", "E"), op="replace")
    driver.close_epoch()
    told = {
        (r["after"]["symbol"], r["before"]["traded"], r["after"]["traded"])
        for r in driver.revisions("totals")
    }
    assert told == {("D", 1111, 1000), ("E", 10000, 10111)}


def test_a_deleted_rename_splits_the_chain(driver):
    put(driver, "renames", rename("B", "C"), op="delete")
    driver.close_epoch()
    assert traded(driver) == {"B": 11, "D": 1100, "E": 10000}


def test_a_circle_stands_still_until_it_is_broken(driver):
    put(driver, "renames", rename("D", "B"))
    driver.close_epoch()
    is_over_trades = "today" not in driver.plan.boxes
    # Renames of the circle are left out, so that trades keep their names; or trades are left out.
    alone = {"A": 1, "B": 10, "C": 100, "D": 1000, "E": 10000}
    assert traded(driver) == ({"E": 10000} if is_over_trades else alone)
    put(driver, "renames", rename("C", "E"), op="replace")
    driver.close_epoch()
    assert traded(driver) == {"E": 11111}


def test_results_of_a_loop_may_be_looked_up_replayed_and_looped_over_again():
    net, renames, trades = sources()
    text = TODAY.format(field="new")
    today = net.iterate(
        "today", renames, lambda x: x.lookup("next", renames, on={"new": "old"}, new=text)
    )
    text = "coalesce(today.new, symbol)"
    loop = net.iterate(
        "named", trades, lambda x: x.lookup("more", today, on={"symbol": "old"}, symbol=text)
    )
    loop.aggregate("totals", by=["symbol"], window=tumbling(10), traded="sum(size)")
    plan = compile_network(net)
    assert [box.arc.name for box in plan.paths["totals"].between] == [
        "today-renames.exchange",
        "today",
        "named-trades.exchange",
        "named-today.exchange",
        "named",
    ]
    with Driver(net, mode="upstream") as driver:
        put(driver, "trades", {"key": "a", "at": 1, "symbol": "A", "size": 5})
        put(driver, "renames", rename("A", "B"), rename("B", "C"))
        driver.end()
        assert traded(driver) == {"C": 5}
        put(driver, "renames", rename("B", "D"), op="replace")
        driver.close_epoch()
        assert traded(driver) == {"D": 5}


def test_all_that_enters_a_loop_comes_to_one_partition():
    plan = compile_network(over_trades()).placed({"trades": 4, "renames": 2})
    assert plan.boxes["named"].inputs == ("named-trades.exchange", "named-renames.exchange")
    assert plan.placement.tasks(plan.topology.scope_of("named")) == ["named.0"]
    assert plan.topology.arcs["named"].partition_by == ()


def test_what_enters_twice_is_read_once():
    plan = compile_network(over_renames())
    assert plan.boxes["today"].inputs == ("today-renames.exchange",)


def test_boxes_that_lead_nowhere_are_left_out_of_a_loop():
    net, renames, trades = sources()

    def body(x):
        x.lookup("lost", trades, on={"old": "key"}, size="trades.size")
        return x.where("kept", "true")

    net.iterate("today", renames, body)
    loop = compile_network(net).boxes["today"]
    assert [box.arc.name for box in loop.body.boxes] == ["kept"]
    assert list(loop.entering) == ["renames"]


def test_explain_shows_a_loop_and_its_body():
    found = explanation(over_renames(rounds=7))["boxes"]["today"]
    assert found["kind"] == "iterate"
    assert found["does"]["rounds"] == 7
    assert found["does"]["body"]["next"]["on"] == {"new": "old"}
    assert found["anchor"] == "renames"
    json.dumps(found)


# ---------------------------------------------------------------- what is refused


def refused(declare):
    net, renames, trades = sources()
    declare(net, renames, trades)
    with pytest.raises(NetworkError) as error:
        compile_network(net)
    return str(error.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: x.where("b", "true", keep="1d"), "no keep= within a loop; found keep='1d'"),
        (lambda x: x.where("b", "true", scope="s"), "no scope= within a loop"),
        (lambda x: x.map("b", new="old", partitions=2), "no partitions= within a loop"),
        (lambda x: x.aggregate("b", window=None, n="count(*)"), "emits in each round"),
        (
            lambda x: x.aggregate("b", window=None, emit="on_update", place="spark", n="count(*)"),
            "no place= within a loop",
        ),
        (lambda x: x.map("b", more="old"), "and no others; found 'more' of 'b' besides"),
        (lambda x: x.map("b", new="length(old)"), "'new' string; found int of 'b'"),
        (lambda x: x.map("b", new="nullif(new, 'x')"), "'new' string; found string? of 'b'"),
        (
            lambda x: x.aggregate("b", by=["new"], window=None, emit="on_update", n="count(*)"),
            "keeps the identity of 'renames', old; found new of 'b'",
        ),
        (lambda x: x.where("b", "lost"), "lost"),
    ],
)
def test_a_body_that_cannot_turn_is_refused(body, message):
    assert message in refused(lambda net, renames, trades: net.iterate("loop", renames, body))


def test_sources_loops_and_sinks_within_a_loop_are_refused():
    def source(net, renames, trades):
        def body(x):
            net.source("more", fields=RENAMES, identity=["old"], event_time="at")
            net.iterate("inner", x, lambda y: y.where("w", "true"))
            x.sink("topic")
            return x.where("b", "true")

        net.iterate("loop", renames, body)

    told = refused(source)
    assert "found source 'more'" in told
    assert "found iterate 'inner'" in told
    assert "no sinks within a loop" in told


def test_what_is_inside_of_a_loop_is_not_seen_outside():
    net = over_renames()
    inside = Stream(net, "next")
    for use in (
        lambda: inside.where("w", "true"),
        lambda: inside.sink("topic"),
        lambda: Stream(net, "trades").lookup("l", inside, on=["key"], x="1"),
    ):
        with pytest.raises(NetworkError, match="visible only in loop 'today'"):
            use()
    with pytest.raises(NetworkError, match="a box of that name in loop 'today'"):
        Stream(net, "trades").where("next", "true")


def test_a_body_returns_an_arc_of_the_loop():
    net, renames, trades = sources()
    for given in (trades, None, "renames"):
        with pytest.raises(NetworkError, match="an arc of the loop, which enters the next round"):
            net.iterate("loop", renames, lambda x, given=given: given)
    assert list(net.declarations) == ["renames", "trades"]


def test_a_bound_is_a_number_of_rounds():
    def declare(net, renames, trades):
        net.iterate("loop", renames, lambda x: x.where("b", "true"), rounds=0)

    assert "rounds above 0" in refused(declare)


def test_what_enters_a_loop_keeps_its_history():
    net, renames, trades = sources(keep=None)
    text = TODAY.format(field="symbol")
    net.iterate(
        "named", trades, lambda x: x.lookup("b", renames, on={"symbol": "old"}, symbol=text)
    )
    with pytest.raises(NetworkError, match="a connection point upstream of each side"):
        compile_network(net)
