"""``significance=``: small revisions are kept back, and what was emitted stays close enough."""

from decimal import Decimal

import pytest

from errata import Network, hopping, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.faults import NetworkError
from errata.processors.plan.deployed import settle
from errata.testing import Driver

MODES = ("upstream", "downstream", "adaptive", "resident")
FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "price": "double",
    "size": "long?",
    "fee": "decimal(9,2)?",
    "note": "string?",
    "due": "timestamp-millis?",
}


def source(net: Network):
    return net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", keep="30d", partition_by=[]
    )


def tuple_(key: str, at: int = 0, price: float = 100.0, **more):
    return {"key": key, "at": at, "price": price, "size": 1, **more}


def counted(driver: Driver, what: str, box: str) -> int:
    return sum(task.report.counts.get(f"{box}.{what}", 0) for task in driver.tasks)


def chain(significance, mode="adaptive") -> Driver:
    """Return a driver of three aggregates over windows that overlap, whose windows have closed."""
    net = Network("chain")
    arc, field = source(net), "price"
    for number, every in enumerate((10, 50, 50)):
        result = f"v{number}"
        arc = arc.aggregate(
            f"b{number}",
            by=[],
            window=hopping(100, every=every),
            significance=significance and {result: significance},
            keep="30d",
            fields={result: f"avg({field})"},
        )
        field = result
    driver = Driver(net, mode=mode)
    driver.send("trades", ({"op": "insert", "after": tuple_(f"k{n}", n * 5)} for n in range(200)))
    driver.close_epoch()
    driver.send("trades", {"op": "insert", "after": tuple_("last", 5_000)})
    driver.close_epoch()
    return driver


def correct(driver: Driver, key: str, **values) -> None:
    """Correct a tuple, in an epoch of its own."""
    before = next(row for row in driver.table("trades") if row["key"] == key)
    driver.send("trades", {"op": "replace", "before": before, "after": before | values})
    driver.close_epoch()


def of_correction(driver: Driver, price: float) -> list[int]:
    """Return how many revisions the boxes emit for a correction."""
    arcs = ("b0", "b1", "b2")
    for arc in arcs:
        driver.revisions(arc)
    correct(driver, "k60", price=price)
    return [len(driver.revisions(arc)) for arc in arcs]


@pytest.mark.parametrize("mode", MODES)
def test_a_correction_below_the_thresholds_costs_no_record_downstream(mode):
    with chain(None, mode) as driver:
        assert of_correction(driver, 100.000001) == [10, 3, 4]
    with chain("0.1%", mode) as driver:
        assert of_correction(driver, 100.000001) == [0, 0, 0]
        assert of_correction(driver, 104.0) == [10, 1, 0]  # by 0.2 %; by 0.2, 0.1 and 0.06 %
        assert counted(driver, "kept_back", "b0-kept") == 10


@pytest.fixture(params=MODES)
def sums(request):
    """A driver of a sum that may be off by 5, of tuples a, b and c in a window that has closed."""
    net = Network("sums")
    source(net).aggregate(
        "sums",
        by=[],
        window=tumbling(100),
        significance={"total": 5, "n": 0},
        keep="30d",
        fields={"total": "sum(price)", "n": "count(*)"},
    )
    with Driver(net, mode=request.param) as driver:
        driver.send("trades", ({"op": "insert", "after": tuple_(key)} for key in "abc"))
        driver.close_epoch()
        driver.send("trades", {"op": "insert", "after": tuple_("last", 1_000)})
        driver.close_epoch()
        yield driver


def total(driver: Driver, arc: str = "sums") -> float:
    return next(row["total"] for row in driver.table(arc) if row["window_start"] == 0)


def test_small_revisions_add_up(sums):
    for price, emitted in ((102, 300), (104, 300), (106, 306), (110, 306), (101, 306), (100, 300)):
        correct(sums, "a", price=price)
        assert (total(sums, "sums-exact"), total(sums)) == (200 + price, emitted)
    assert sums.table("sums-kept") == []


def test_what_is_kept_back_is_known_after_a_restart(sums):
    correct(sums, "a", price=104)
    number = next(n for n, task in enumerate(sums.tasks) if task.name.startswith("trades."))
    sums.attempts[number].close()
    sums.attempts[number] = sums.tasks[number].steps()
    for _ in sums.attempts[number]:
        if sums.tasks[number].started:
            break
        for sweeper in sums.sweepers.values():
            sweeper.follow()
    correct(sums, "b", price=104)
    assert (total(sums, "sums-exact"), total(sums)) == (308, 308)
    correct(sums, "b", price=103)
    assert (total(sums, "sums-exact"), total(sums)) == (307, 308)


def test_a_delete_and_another_number_of_tuples_are_never_kept_back(sums):
    correct(sums, "a", price=104)
    sums.send("trades", {"op": "insert", "after": tuple_("d", 50, 0.0)})
    sums.close_epoch()
    assert total(sums) == 304
    correct(sums, "a", price=103)
    assert total(sums) == 304
    for key in "abcd":
        row = next(row for row in sums.table("trades") if row["key"] == key)
        sums.send("trades", {"op": "delete", "before": row})
    sums.close_epoch()
    assert [row["window_start"] for row in sums.table("sums")] == []
    assert sums.table("sums-kept") == []


def settle_at_rest(driver: Driver) -> None:
    """Settle without input: ingest stamps an epoch for it, once a second."""
    settle(driver.cluster, driver.plan, 1)
    for _ in range(25):
        driver.close_epoch()


def test_settled_results_are_exact(sums):
    correct(sums, "a", price=104)
    assert (total(sums, "sums-exact"), total(sums)) == (304, 300)
    settle_at_rest(sums)
    assert (total(sums, "sums-exact"), total(sums)) == (304, 304)
    assert sums.table("sums-kept") == []
    correct(sums, "a", price=105)
    assert (total(sums, "sums-exact"), total(sums)) == (305, 304)
    settle(sums.cluster, sums.plan, 2)
    before = next(row for row in sums.table("trades") if row["key"] == "a")
    sums.send("trades", {"op": "replace", "before": before, "after": before | {"price": 106}})
    sums.close_epoch()
    assert (total(sums, "sums-exact"), total(sums)) == (306, 306)


def test_a_group_below_is_computed_from_what_was_emitted():
    """A replay goes through a box that keeps revisions back, and no connection point is below."""
    net = Network("through")
    near = source(net).map(
        "near", significance={"price": 5, "twice": 10}, fields={"twice": "price * 2"}
    )
    near.aggregate(
        "sums", by=[], window=tumbling(100), mode="upstream", fields={"total": "sum(price)"}
    )
    with Driver(net) as driver:
        driver.send("trades", ({"op": "insert", "after": tuple_(key)} for key in "abc"))
        driver.close_epoch()
        driver.send("trades", {"op": "insert", "after": tuple_("last", 1_000)})
        driver.close_epoch()
        correct(driver, "a", price=104)
        assert total(driver) == 300
        correct(driver, "b", price=110)
        assert total(driver) == 310
        settle_at_rest(driver)
        assert total(driver) == 314


def test_a_loop_keeps_revisions_back():
    net = Network("looping")
    net.iterate(
        "loop",
        source(net),
        lambda round_: round_.map("less", fields={"size": "if(size > 3, size - 1, size)"}),
        significance={"price": 5},
    )
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": tuple_("a") | {"size": 9}})
        driver.close_epoch()
        for price, emitted in ((104, 100), (106, 106), (100, 100)):
            correct(driver, "a", price=price)
            assert [(t["size"], t["price"]) for t in driver.table("loop")] == [(3, emitted)]


def test_an_arc_below_is_joined_as_it_was_emitted():
    net = Network("near")
    trades = source(net)
    within = {"price": "10%", "twice": "10%"}
    near = trades.map("near", significance=within, fields={"twice": "price * 2"})
    trades.lookup("both", near, on=["key"], fields={"then": "near.twice"}, keep="30d")
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": tuple_("a")})
        driver.close_epoch()
        for price, then in ((105.0, 200.0), (115.0, 230.0), (116.0, 230.0)):
            correct(driver, "a", price=price, note=None)
            assert [(row["price"], row["then"]) for row in driver.table("both")] == [(price, then)]


@pytest.mark.parametrize(
    ("significance", "told"),
    [
        ({"total": -1}, "found -1 is negative"),
        ({"total": "-1%"}, "found '-1%' is negative"),
        ({"total": "much"}, "found 'much' is no number"),
        ({"total": float("nan")}, "found nan is no number"),
        ({"total": True}, "found True is no number"),
        ({"totl": 1}, "significance among the fields; found unknown 'totl'"),
        ({"note": 1}, "a threshold for 'note'; found values of type string have no distance"),
        ({"due": 5.5}, "a threshold for 'due'"),
        ({"window_start": 1}, "identity and event time are always exact; found 'window_start'"),
        ({"window_end": 1}, "identity and event time are always exact; found 'window_end'"),
        ({}, "a threshold by field for significance; found {}"),
        ("0.1%", "a threshold by field for significance; found '0.1%'"),
    ],
)
def test_what_is_no_threshold_is_refused(significance, told):
    net = Network("bad")
    source(net).aggregate(
        "sums",
        by=[],
        window=tumbling(100),
        significance=significance,
        fields={"total": "sum(price)", "note": "max(note)", "due": "max(due)"},
    )
    with pytest.raises(NetworkError) as caught:
        compile_network(net)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("threshold", "field", "before", "near", "far"),
    [
        (2, "size", 5, 7, 8),
        ("50%", "size", -4, -6, -7),
        (0, "size", 2**62, None, 2**62 + 1),
        (1, "size", 2**63 - 1, 2**63 - 2, -(2**63)),
        ("0.05", "fee", Decimal("1.00"), Decimal("1.05"), Decimal("1.06")),
        ("1%", "fee", Decimal("100.00"), Decimal("99.00"), Decimal("98.99")),
        (0.5, "price", 1.0, 1.5, 1.6),
        ("1s", "due", 0, 1_000, 1_001),
        (1, "size", 5, None, None),
    ],
)
def test_the_distance_of_values(threshold, field, before, near, far):
    net = Network("far")
    source(net).where("all", "true", significance={field: threshold})
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": tuple_("a") | {field: before}})
        driver.close_epoch()
        (first,) = driver.table("all")
        if near is not None:
            correct(driver, "a", **{field: near})
            assert driver.table("all") == [first]
        correct(driver, "a", **{field: far})
        assert driver.table("all") == driver.table("trades") != [first]


def test_an_event_time_that_changes_is_not_kept_back():
    net = Network("moves")
    source(net).where("all", "true", significance={"price": 5})
    with Driver(net) as driver:
        driver.send("trades", {"op": "insert", "after": tuple_("a")})
        driver.close_epoch()
        correct(driver, "a", price=101, note=None)
        assert driver.table("all")[0]["price"] == 100
        correct(driver, "a", at=1)
        assert driver.table("all") == driver.table("trades")


def test_the_three_boxes_of_one_on_spark_are_one_job_that_asks_no_sweeper():
    net = Network("spark")
    source(net).aggregate(
        "sums",
        by=[],
        window=tumbling(100),
        place="spark",
        significance={"total": 1},
        total="sum(price)",
    )
    plan = compile_network(net)
    assert plan.topology.jobs["sums"].boxes == ("sums-exact", "sums-kept", "sums")
    assert "sums-kept" not in plan.replayed_points()


def test_a_box_within_a_loop_keeps_nothing_back():
    net = Network("looping")
    net.iterate(
        "loop",
        source(net),
        lambda turn: turn.map("less", size="size", significance={"size": 1}),
    )
    with pytest.raises(NetworkError, match="no significance= within a loop"):
        compile_network(net)


def test_fields_named_like_those_of_kept_results():
    net = Network("named")
    fields = {"key": "string", "at": "timestamp-millis", "price": "double", "emitted_price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.where("all", "true", significance={"price": 5, "emitted_price": 1})
    with Driver(net) as driver:
        first = {"key": "a", "at": 0, "price": 100.0, "emitted_price": 7}
        driver.send("trades", {"op": "insert", "after": first})
        driver.close_epoch()
        correct(driver, "a", price=103.0, emitted_price=8)
        assert driver.table("all") == [first]
        correct(driver, "a", price=106.0)
        assert driver.table("all") == driver.table("trades")
    named = net.source(
        "more", fields=fields, identity=["emitted_price"], event_time="at", keep="1d"
    )
    named.where("other", "true", significance={"price": 5})
    with pytest.raises(NetworkError, match="an identity without the names of kept results"):
        compile_network(net)
