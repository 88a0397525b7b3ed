"""Lookups as a user declares them: what they give, what they need, and what is refused."""

from dataclasses import replace

import polars as pl
import pytest

from errata import Network, NetworkError, Stream, tumbling
from errata.processors.compile.compiler import compile_network
from errata.testing import Driver

TRADES = {"key": "string", "at": "timestamp-millis", "symbol": "string?", "size": "long"}
RENAMES = {"old": "string", "at": "timestamp-millis", "new": "string", "size": "long"}
TODAY = "coalesce(renames.new, symbol)"


def network(*, on=None, keep="1d", trades=None, renames=None, **options):
    net = Network("desk")
    sides = {
        "trades": {"fields": TRADES, "identity": ["key"]} | (trades or {}),
        "renames": {"fields": RENAMES, "identity": ["old"]} | (renames or {}),
    }
    one, other = (net.source(n, event_time="at", keep=keep, **o) for n, o in sides.items())
    given = {"on": on or {"symbol": "old"}, "fields": {"symbol": TODAY}} | options
    one.lookup("named", other, **given)
    return net


def trade(key, symbol, *, at=5, size=1):
    return {"key": key, "at": at, "symbol": symbol, "size": size}


def rename(old, new, *, at=9, size=7):
    return {"old": old, "at": at, "new": new, "size": size}


def put(driver, source, *after):
    driver.send(source, [{"op": "insert", "after": t} for t in after])


def revised(driver, arc, *names):
    def side(row):
        return row and tuple(row[name] for name in names)

    told = [(side(r.get("before")), side(r.get("after"))) for r in driver.revisions(arc)]
    return sorted(told, key=repr)


def test_a_tuple_gets_what_it_names_and_is_revised_with_it():
    with Driver(network()) as driver:
        put(driver, "trades", trade("a", "OLD"), trade("b", "NEW"), trade("c", None))
        put(driver, "renames", rename("OLD", "NEW"))
        driver.close_epoch()
        assert driver.table("named") == [trade("a", "NEW"), trade("b", "NEW"), trade("c", None)]
        driver.revisions("named")
        driver.send("renames", {"op": "replace", "after": rename("OLD", "TOP")})
        driver.close_epoch()
        assert revised(driver, "named", "key", "symbol") == [(("a", "NEW"), ("a", "TOP"))]
        driver.send("renames", {"op": "delete", "before": rename("OLD", "TOP")})
        driver.send("trades", {"op": "replace", "after": trade("b", "OLD")})
        driver.close_epoch()
        assert revised(driver, "named", "key", "symbol") == [
            (("a", "TOP"), ("a", "OLD")),
            (("b", "NEW"), ("b", "OLD")),
        ]


def test_a_result_keeps_identity_fields_and_event_time_of_the_tuple_that_looks_up():
    plan = compile_network(network(how="inner", fields={"renamed_at": "renames.at"}))
    arc, above = plan.topology.arcs["named"], plan.topology.arcs["trades"]
    assert (arc.identity, arc.event_time) == (("key",), "at")
    assert arc.fields == above.fields | {"renamed_at": plan.topology.arcs["renames"].fields["at"]}
    with Driver(network(how="inner", fields={"was": "trades.size + renames.size"})) as driver:
        put(driver, "trades", trade("a", "OLD"), trade("b", "NEW"))
        put(driver, "renames", rename("OLD", "NEW"))
        driver.close_epoch()
        assert driver.table("named") == [trade("a", "OLD") | {"was": 8}]


def test_what_names_the_fields_alike_needs_no_pairs_and_own_fields_no_alias():
    by_key = {"fields": TRADES, "identity": ["key"]}
    net = network(on=["key"], alias="other", renames=by_key, fields={"size": "size + other.size"})
    with Driver(net) as driver:
        put(driver, "trades", trade("a", "X", size=2))
        put(driver, "renames", trade("a", "Y", size=3))
        driver.close_epoch()
        assert driver.table("named") == [trade("a", "X", size=5)]


def test_each_side_is_asked_for_by_its_own_fields():
    plan = compile_network(network(trades={"partition_by": ["key"]}))
    path = plan.paths["named.exchange"]
    assert {anchor.arc.name: anchor.pushed for anchor in path.anchors} == {
        "trades": {"symbol": "symbol"},
        "renames": {"old": "symbol"},
    }


def test_fields_that_change_places_are_not_asked_for_by_one_name():
    net = Network("swap")
    fields = {"a": "string", "b": "string", "at": "timestamp-millis"}
    arc = net.source("s", fields=fields, identity=["a", "b"], event_time="at", keep="1d")
    arc.lookup("back", arc, on={"a": "b", "b": "a"}, alias="other", there="other.a is not null")
    path = compile_network(net).paths["back"]
    assert [dict(anchor.pushed) for anchor in path.anchors] == [{}]
    with Driver(net) as driver:
        put(driver, "s", {"a": "x", "b": "y", "at": 1}, {"a": "y", "b": "x", "at": 1})
        put(driver, "s", {"a": "x", "b": "z", "at": 1})
        driver.close_epoch()
        found = {(t["a"], t["b"]): t["there"] for t in driver.table("back")}
        assert found == {("x", "y"): True, ("y", "x"): True, ("x", "z"): False}


@pytest.mark.parametrize("by", [["symbol"], ["key"]])
def test_what_is_replaced_and_partitioned_by_passes_an_exchange(by):
    net = network(trades={"partition_by": by})
    named = Stream(net, "named")
    named.aggregate("sizes", by=["symbol"], window=tumbling(10), total="sum(size)", keep="1d")
    plan = compile_network(net).placed({"trades": 2, "renames": 2})
    assert plan.topology.arcs["named"].partition_by == ("symbol",)
    assert plan.topology.arcs["named.exchange"].exchange
    assert plan.placement.partitions["named"] == 2
    scopes = {plan.topology.scope_of(name) for name in ("named.exchange", "named", "sizes")}
    assert scopes == {"named-exchange", "named"}
    with Driver(net) as driver:
        put(driver, "trades", trade("a", "OLD"), trade("b", "NEW"))
        driver.end()
        assert [(t["symbol"], t["total"]) for t in driver.table("sizes")] == [
            ("NEW", 1),
            ("OLD", 1),
        ]
        driver.revisions("sizes")
        put(driver, "renames", rename("OLD", "NEW"))
        driver.close_epoch()
        assert revised(driver, "sizes", "symbol", "total") == [
            (("NEW", 1), ("NEW", 2)),
            (("OLD", 1), None),
        ]


@pytest.mark.parametrize("keep", ["1d", None])
def test_windows_are_replayed_with_what_was_found_however_late_it_happened(keep):
    net = network(keep="1d")
    net.declarations["named"] = replace(net.declarations["named"], keep=keep)
    named = Stream(net, "named")
    named.aggregate("sizes", by=["key"], window=tumbling(10), named="max(symbol)")
    with Driver(net, mode="upstream") as driver:
        put(driver, "trades", trade("a", "OLD"))
        put(driver, "renames", rename("OLD", "NEW", at=10_000))
        driver.end()
        assert [row["named"] for row in driver.table("sizes")] == ["NEW"]
        driver.send("trades", {"op": "replace", "after": trade("a", "OLD", size=2)})
        driver.close_epoch()
        assert [row["named"] for row in driver.table("sizes")] == ["NEW"]


def test_sides_that_lie_together_by_fields_of_different_names_need_no_exchange():
    given = {"trades": {"partition_by": ["symbol"]}, "renames": {"partition_by": ["old"]}}
    net = network(fields={"note": "renames.new"}, **given)
    plan = compile_network(net)
    assert [name for name, arc in plan.topology.arcs.items() if arc.exchange] == [
        "named-trades.exchange",
        "named-renames.exchange",
    ]  # each has as many partitions as the user's topic has: not known to be the same
    for options in given.values():
        options["partitions"] = 3
    plan = compile_network(network(fields={"note": "renames.new"}, **given))
    assert plan.boxes["named"].inputs == ("trades", "renames")


def test_an_aggregate_below_a_lookup_asks_only_for_groups_that_no_lookup_computes():
    net = network(fields={"note": "renames.new"})
    Stream(net, "named").aggregate("sizes", by=["symbol"], window=tumbling(10), total="sum(size)")
    path = compile_network(net).paths["sizes"]
    asked = {a.arc.name: a.ranges(_needed()).drop("from_ms", "to_ms").columns for a in path.anchors}
    assert asked == {"trades": ["symbol"], "renames": ["old"]}
    net = network()
    Stream(net, "named").aggregate("sizes", by=["symbol"], window=tumbling(10), total="sum(size)")
    path = compile_network(net).paths["sizes"]
    assert [dict(anchor.pushed) for anchor in path.anchors] == [{}, {}]


def _needed():
    return pl.DataFrame({"symbol": ["X"], "from_ms": [0], "to_ms": [10]})


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: network(keep=None), "a connection point upstream of each side"),
        (lambda: network(on={"symbol": "new"}), "the whole identity of 'renames' matched"),
        (lambda: network(on={"lost": "old"}), "on among the fields"),
        (lambda: network(on={"size": "old"}), "'size' long of 'trades' and 'old' string of"),
        (lambda: network(on={"key": "old", "symbol": "old"}), "each field of on once"),
        (lambda: network(how="outer"), "how='inner' or how='left'"),
        (lambda: network(alias="trades"), "another alias for 'renames' than its input's name"),
        (lambda: network(fields={"key": "renames.new"}), "identity and event time of its input"),
        (lambda: network(fields={"at": "renames.at"}), "identity and event time of its input"),
        (lambda: network(fields={"bad": "new"}), "'new'"),
        (lambda: network(partitions=0), "partitions above 0"),
    ],
)
def test_what_a_lookup_cannot_be_is_refused(declare, message):
    with pytest.raises(NetworkError, match=message):
        compile_network(declare())


def test_a_lookup_is_in_an_arc_of_its_network():
    net = network()
    with pytest.raises(NetworkError, match="an arc of this network; found 'lost'"):
        Stream(net, "trades").lookup("other", Stream(net, "lost"), on=["key"], x="1")
