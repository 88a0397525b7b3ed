"""Joins as a user declares them: what they give, what they need, and what is refused."""

import pytest

from errata import Network, NetworkError, Stream, tumbling
from errata.processors.compile.compiler import compile_network
from errata.testing import Driver

FIELDS = {"key": "string", "at": "timestamp-millis", "x": "long", "note": "string?"}


def source(net, name, *, keep="1d", **options):
    given = {"fields": FIELDS, "identity": ["key"], "event_time": "at", "keep": keep} | options
    return net.source(name, **given)


def told(key, at, x, note=None):
    return {"key": key, "at": at, "x": x, "note": note}


def revised(driver, arc, *names):
    def side(row):
        return row and tuple(row[name] for name in names)

    told = [(side(r.get("before")), side(r.get("after"))) for r in driver.revisions(arc)]
    return sorted(told, key=repr)


def ratio(*, scopes=(None, None), **options):
    """(A+1)/(A+2) of one stream, as in the Streamulus talk."""
    net = Network("ratio")
    a = source(net, "a", **options)
    num = a.map("num", x="x + 1", scope=scopes[0])
    den = a.map("den", x="x + 2", scope=scopes[1])
    net.join("ratio", {"n": num, "d": den}, on=["key"], r="n.x / d.x")
    return net


@pytest.mark.parametrize("keep", ["1d", None])
@pytest.mark.parametrize("scopes", [(None, None), ("one", "two")])
def test_a_diamond_of_streams_gives_a_half_and_two_thirds_and_nothing_else(scopes, keep):
    with Driver(ratio(scopes=scopes, keep=keep)) as driver:
        for x in (0, 1):
            driver.send("a", {"op": "insert", "after": told(str(x), x, x)})
            driver.close_epoch()
        assert revised(driver, "ratio", "r") == [(None, (0.5,)), (None, (2 / 3,))]
    with Driver(ratio(scopes=scopes, keep=keep)) as driver:
        driver.send("a", [{"op": "insert", "after": told(str(x), x, x)} for x in (0, 1)])
        driver.close_epoch()
        assert revised(driver, "ratio", "r") == [(None, (0.5,)), (None, (2 / 3,))]


def test_a_diamond_gives_one_revision_for_a_revision():
    with Driver(ratio()) as driver:
        driver.send("a", {"op": "insert", "after": told("k", 0, 0)})
        driver.close_epoch()
        revision = {"op": "replace", "before": told("k", 0, 0), "after": told("k", 0, 1)}
        driver.send("a", revision)
        driver.close_epoch()
        assert revised(driver, "ratio", "r") == [((0.5,), (2 / 3,)), (None, (0.5,))]


def test_sides_of_one_source_joined_on_its_identity_ask_for_no_history():
    plan = compile_network(ratio(keep=None))
    assert plan.asked() == []
    assert plan.boxes["ratio"].inputs == ("a",)


def test_pairs_lie_where_a_field_says_that_no_side_computes():
    net = Network("apart")
    a = source(net, "a", partition_by=["x"])
    sides = {"n": a.map("one", x="x + 1"), "d": a.map("other", x="x + 1")}
    net.join("met", sides, on=["key", "x"], s="n.note")
    plan = compile_network(net)
    assert plan.boxes["met"].inputs == ("met.exchange",)
    assert plan.topology.arcs["met"].partition_by == ("key",)


def two(*, how="inner", on=("key",), keep="1d", **options):
    net = Network("two")
    one, other = source(net, "one", keep=keep), source(net, "other", keep=keep)
    net.join("met", {"n": one, "d": other}, on=on, how=how, s="n.x + d.x", v="d.x", **options)
    return net


@pytest.mark.parametrize("on", ["key", "note"])
def test_each_side_may_be_revised_and_a_left_tuple_alone_has_nulls(on):
    with Driver(two(how="left", on=[on])) as driver:
        driver.send("one", {"op": "insert", "after": told("k", 5, 7, "y")})
        driver.close_epoch()
        assert revised(driver, "met", "s", "at") == [(None, (None, 5))]
        driver.send("other", {"op": "insert", "after": told("k", 9, 2, "y")})
        driver.close_epoch()
        found = revised(driver, "met", "s", "at")
        alone, pair = (None, 5), (9, 9)
        # Joined on the identity a pair takes the place of the left tuple; else it is another one.
        wanted = [(alone, pair)] if on == "key" else [(alone, None), (None, pair)]
        assert found == sorted(wanted, key=repr)
        driver.send("other", {"op": "delete", "before": told("k", 9, 2, "y")})
        driver.close_epoch()
        driver.end()
        assert [(row["s"], row["at"]) for row in driver.table("met")] == [alone]


def test_null_equals_nothing_but_a_left_tuple_stays():
    for how, wanted in (("inner", []), ("left", [None])):
        with Driver(two(how=how, on=["note"])) as driver:
            driver.send("one", {"op": "insert", "after": told("k", 5, 7)})
            driver.send("other", {"op": "insert", "after": told("k", 9, 2)})
            driver.close_epoch()
            assert [row["v"] for row in driver.table("met")] == wanted


def test_revisions_of_both_sides_in_one_epoch_are_one_revision():
    with Driver(two()) as driver:
        driver.send("one", {"op": "insert", "after": told("k", 5, 7)})
        driver.send("other", {"op": "insert", "after": told("k", 9, 2)})
        driver.close_epoch()
        for name, x in (("one", 7), ("other", 2)):
            before, after = told("k", 5, x), told("k", 5, x + 1)
            driver.send(name, {"op": "replace", "before": before, "after": after})
        driver.close_epoch()
        assert revised(driver, "met", "s") == [((9,), (11,)), (None, (9,))]


def test_an_aggregate_over_a_join_is_revised():
    net = two(on=["note"])
    Stream(net, "met").aggregate("sums", by=["note"], window=tumbling(100), total="sum(s)")
    with Driver(net) as driver:
        driver.send("one", [{"op": "insert", "after": told(k, 5, 7, "y")} for k in "ab"])
        driver.send("other", {"op": "insert", "after": told("c", 9, 2, "y")})
        driver.end()
        assert [row["total"] for row in driver.table("sums")] == [18]
        before, after = told("c", 9, 2, "y"), told("c", 9, 3, "y")
        driver.send("other", {"op": "replace", "before": before, "after": after})
        driver.close_epoch()
        assert [row["total"] for row in driver.table("sums")] == [20]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: two(keep=None), "a connection point upstream of each side"),
        (lambda: two(on=["lost"]), "on among the fields"),
        (lambda: two(on=[]), "fields to join on"),
        (lambda: two(how="outer"), "how='inner' or how='left'"),
        (lambda: two(fields={"at": "n.x"}), "results under names of their own"),
        (lambda: two(bad="m.x"), r"m\.x"),
        (lambda: two(bad="x"), "'x'"),
        (lambda: two(keep="1d", partitions=0), "partitions above 0"),
    ],
)
def test_what_a_join_cannot_be_is_refused(declare, message):
    with pytest.raises(NetworkError, match=message):
        compile_network(declare())


def test_what_is_joined_on_has_one_exact_type():
    net = Network("kinds")
    one = source(net, "one", fields=FIELDS | {"r": "double", "z": "int"})
    other = source(net, "other", fields=FIELDS | {"r": "double", "z": "long"})
    net.join("rough", {"a": one, "b": other}, on=["r"], s="a.x")
    net.join("wide", {"a": one, "b": other}, on=["z"], s="a.x")
    with pytest.raises(NetworkError) as error:
        compile_network(net)
    assert "whose values are exact" in str(error.value)
    assert "of the same type; found 'z' int of 'one' and long of 'other'" in str(error.value)


def test_a_join_has_two_named_sides():
    net = Network("sides")
    one = source(net, "one")
    for streams in ({"a": one}, {"a": one, "b": one, "c": one}, {"a b": one, "c": one}):
        with pytest.raises(NetworkError, match="two arcs of this network, each with an alias"):
            net.join("met", streams, on=["key"], s="a.x")
