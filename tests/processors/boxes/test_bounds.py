"""How far results may be off below a box that keeps revisions back: on paper, and in truth."""

from fractions import Fraction

import pytest

from errata import Network, hopping, tumbling
from errata.processors.boxes.bounds import Bound
from errata.processors.compile.compiler import compile_network
from errata.testing import Driver

FIELDS = {
    "key": "string",
    "desk": "string",
    "at": "timestamp-millis",
    "price": "double",
    "size": "long?",
    "due": "timestamp-millis?",
}
TENTH, TWO, FIVE_S = Bound(share=Fraction(1, 10)), Bound(Fraction(2)), Bound(Fraction(5_000))
SAME_SIGN = TENTH._replace(one_sign=True)


def network():
    net = Network("bounds")
    trades = net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", keep="30d", partition_by=[]
    )
    within = {"price": "10%", "size": 2, "due": "5s"}
    return net, trades.where("near", "true", significance=within)


def bounds(net: Network, arc: str):
    return compile_network(net).bounds[arc]


@pytest.mark.parametrize(
    ("result", "bound"),
    [
        ("max(price)", TENTH),
        ("min(size)", TWO),
        ("first(due)", FIVE_S),
        ("avg(price)", SAME_SIGN),
        ("avg(size)", TWO),
        ("median(size)", TWO),
        ("sum(price)", SAME_SIGN),
        ("sum(size)", None),
        ("count(distinct size)", None),
        ("stddev_pop(price)", None),
        ("max(price) + 1", None),
        ("max(price * 2)", None),
        ("max_by(price, size)", None),
        ("count(key) filter (where price > 5)", None),
    ],
)
def test_the_bound_of_an_aggregate(result, bound):
    net, near = network()
    near.aggregate("sums", by=["desk"], window=tumbling("1h"), fields={"x": result})
    assert bounds(net, "sums").fields == {"x": bound}


@pytest.mark.parametrize("result", ["count(*)", "count(size)", "min(key)"])
def test_a_result_that_is_exact(result):
    net, near = network()
    near.aggregate("sums", by=["desk"], window=tumbling("1h"), fields={"x": result})
    assert bounds(net, "sums").is_exact


def test_thresholds_of_a_chain_add_up():
    net, near = network()
    near.aggregate(
        "tops",
        by=["desk"],
        window=tumbling("1h"),
        significance={"price": "10%", "size": "1%"},
        fields={"price": "max(price)", "size": "max(size)"},
    )
    assert bounds(net, "tops").fields == {
        "price": Bound(share=Fraction(21, 100)),
        "size": Bound(Fraction(2), Fraction(1, 100)),
    }


def test_what_an_inexact_field_decides_has_no_bound():
    net, near = network()
    near.where("cheap", "price < 5").map("more", fields={"twice": "size * 2"})
    near.where("desks", "desk = 'a'")
    near.aggregate("groups", by=["size"], window=tumbling("1h"), n="count(*)")
    near.map("moved", fields={"at": "due"}, keep="30d")
    near.lag("before", by=["size"], fields={"then": "key"})
    told = {
        "cheap": "where 'cheap' may have other tuples",
        "more": "where 'cheap' may have other tuples",
        "groups": "aggregate 'groups' may have other tuples",
        "moved": "map 'moved' may have other tuples",
        "before": "lag 'before' may have other tuples",
    }
    assert {arc: bounds(net, arc).why for arc in told} == told
    assert bounds(net, "desks") == bounds(net, "near")


def test_fields_that_pass_keep_their_bounds():
    net, near = network()
    near.map("copied", fields={"cost": "price", "price": "1.0D", "twice": "size * 2"})
    other = near.lag("before", by=["desk"], fields={"earlier": "price"})
    other.lookup("both", near, on=["key"], fields={"seen": "near.due", "own": "earlier"})
    net.union("all", near, near.where("desks", "desk = 'a'", significance={"size": 7}))
    assert bounds(net, "copied").fields == {
        "cost": TENTH, "twice": None, "size": TWO, "due": FIVE_S,
    }  # fmt: skip
    assert bounds(net, "before").fields["earlier"] == TENTH
    assert bounds(net, "both").fields == {
        "price": TENTH, "size": TWO, "due": FIVE_S, "earlier": TENTH, "seen": FIVE_S, "own": TENTH,
    }  # fmt: skip
    assert bounds(net, "all").fields["size"] == Bound(Fraction(9))


def test_a_share_adds_up_for_values_of_one_sign_only():
    """The bound of a sum holds if all values are positive; else it is told that it does not."""
    net, near = network()
    near.aggregate("sums", by=[], window=hopping(100, every=100), fields={"total": "sum(price)"})
    tuples = [
        {"key": str(n), "desk": "a", "at": n, "price": 100.0 * sign, "size": 1, "due": None}
        for n, sign in enumerate((1, 1, -1, -1))
    ]
    with Driver(net) as driver:
        driver.send("trades", ({"op": "insert", "after": t} for t in tuples))
        driver.close_epoch()
        for t in tuples:
            changed = t | {"price": t["price"] + 9}
            driver.send("trades", {"op": "replace", "before": t, "after": changed})
        driver.end()
        assert [row["total"] for row in driver.table("sums")] == [0]  # not 36
    assert bounds(net, "sums").fields["total"].one_sign
