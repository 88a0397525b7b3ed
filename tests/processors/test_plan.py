"""A network that can't work is refused before anything runs, one message per fault."""

import pytest

from errata import Network, NetworkError, hopping, tumbling
from processors.plan import compile_network

FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "product": "string",
    "desk": "string?",
    "price": "decimal(9,2)",
}


def source(net, name="trades", **options):
    given = {"fields": FIELDS, "identity": ["key"], "event_time": "at", "keep": "1d"} | options
    return net.source(name, **given)


def faults(net, **options):
    with pytest.raises(NetworkError) as caught:
        compile_network(net, **options)
    return caught.value.faults


WINDOW = hopping("30m", every="20m")

FAULTY = {
    "unknown column": (lambda t: t.where("w", "prise > 1"), "w", "found 'prise'", "price"),
    "predicate is no boolean": (lambda t: t.where("w", "price"), "w", "decimal(9,2)", "compare"),
    "type error": (lambda t: t.map("m", x="product + 1"), "m", "product", "correct"),
    "identity lost": (lambda t: t.map("m", key="product"), "m", "identity", "another name"),
    "event time replaced": (lambda t: t.map("m", at="at"), "m", "event time", "another name"),
    "unknown group": (
        lambda t: t.aggregate("a", by=["nope"], window=WINDOW, n="count(*)"), "a", "'nope'", "use",
    ),
    "sum of text": (
        lambda t: t.aggregate("a", by=[], window=WINDOW, n="sum(product)"), "a", "sum(string)",
        "cast",
    ),
    "reserved result": (
        lambda t: t.aggregate("a", by=[], window=WINDOW, window_end="count(*)"), "a",
        "'window_end'", "rename",
    ),
    "hidden name": (
        lambda t: t.aggregate("a", by=[], window=WINDOW, __x="count(*)"), "a", "'__x'", "rename",
    ),
    "no window": (lambda t: t.aggregate("a", by=[], window="30m", n="count(*)"), "a", "'30m'",
                  "hopping"),
    "unknown mode": (
        lambda t: t.aggregate("a", by=[], window=WINDOW, mode="sideways", n="count(*)"), "a",
        "'sideways'", "use one of",
    ),
    "illegal downstream": (
        lambda t: t.aggregate("a", by=[], window=WINDOW, mode="downstream", n="count(*)"), "a",
        "keeps no history", "keep=",
    ),
    "keep below the radius": (
        lambda t: t.aggregate("a", by=[], window=tumbling("2d"), n="count(*)"), "trades",
        "86400000 ms", "172800000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_names_box_need_found_and_remedy(name):
    declare, box, found, remedy = FAULTY[name]
    net = Network("faulty")
    declare(source(net))
    (fault,) = faults(net)
    assert fault.box == box
    assert fault.place is not None
    assert fault.place.file == "test_plan.py"
    assert found in str(fault)
    assert remedy in fault.remedy + fault.found
    assert "needs" in str(fault)


def test_all_faults_are_told_at_once():
    net = Network("faulty")
    trades = source(net, keep=None)
    trades.where("w", "prise > 1")
    trades.aggregate("a", by=[], window=WINDOW, n="count(*)", mode="downstream")
    trades.aggregate("b", by=["nope"], window=WINDOW, n="count(*)")
    assert [fault.box for fault in faults(net)] == ["w", "b", "a", "a"]


def test_no_connection_point_upstream_is_refused():
    net = Network("faulty")
    source(net, keep=None).aggregate("a", by=[], window=WINDOW, n="count(*)")
    (fault,) = faults(net)
    assert "connection point upstream" in fault.need
    assert "keep=" in fault.remedy


@pytest.mark.parametrize(
    ("options", "need"),
    [
        ({"fields": {"key": "strin", "at": "timestamp-millis"}}, "a type for field"),
        ({"identity": []}, "an identity"),
        ({"identity": ["desk"]}, "never null"),
        ({"event_time": "price"}, "timestamp-millis"),
        ({"envelope": "xml"}, "an envelope"),
        ({"format": "csv"}, "a format"),
        ({"keep": "1 fortnight"}, "a duration for keep"),
        ({"partitions": 0}, "partitions above 0"),
        ({"partition_by": ["nope"]}, "partition_by"),
        ({"partition_by": ["price"]}, "groups that lie in one partition"),
    ],
)
def test_a_source_that_cannot_work_is_refused(options, need):
    net = Network("faulty")
    source(net, **options).aggregate("a", by=["product"], window=WINDOW, n="count(*)")
    assert any(need in str(fault) for fault in faults(net))


@pytest.mark.parametrize(
    "declare",
    [
        lambda net, t: source(net),
        lambda net, t: t.where("x y", "true"),
        lambda net, t: t.where("progress", "true"),
        lambda net, t: t.where("__x", "true"),
        lambda net, t: t.map("m"),
        lambda net, t: t.map("m", fields={"x": "1"}, x="1"),
    ],
)
def test_double_reserved_and_missing_names_are_refused_with_their_place(declare):
    net = Network("faulty")
    trades = source(net)
    with pytest.raises(NetworkError, match=r"test_plan\.py:\d+"):
        declare(net, trades)


def test_a_filter_between_by_values_makes_downstream_illegal_and_by_identity_does_not():
    for predicate, legal in (("n > 1", False), ("product = 'A'", True)):
        net = Network("between")
        totals = source(net).aggregate("a", by=["product"], window=WINDOW, n="count(*)")
        totals.where("some", predicate, keep="1d")
        choice = compile_network(net).choices["a"]
        assert choice.mode == ("downstream" if legal else "upstream")
        assert legal or "by n, not by identity alone" in choice.reason


def test_the_anchor_is_the_nearest_connection_point_and_the_radius_adds_the_windows_between():
    for keep, anchor, radius in ((None, "trades", 90), ("1d", "first", 60)):
        net = Network("chain")
        first = source(net).aggregate(
            "first", by=["product"], window=WINDOW, n="count(*)", keep=keep
        )
        first.aggregate("second", by=["product"], window=tumbling("1h"), n="sum(n)")
        plan = compile_network(net)
        assert plan.paths["second"].anchor.name == anchor
        assert plan.paths["second"].radius_ms == radius * 60_000


def test_partition_by_is_inferred_from_what_all_aggregates_group_by():
    net = Network("inferred")
    trades = source(net)
    trades.aggregate("a", by=["product", "desk"], window=WINDOW, n="count(*)")
    trades.where("w", "price > 1").aggregate("b", by=["product"], window=WINDOW, n="count(*)")
    assert compile_network(net).arcs["trades"].partition_by == ("product",)
    trades.aggregate("c", by=["desk"], window=WINDOW, n="count(*)")
    assert compile_network(net).arcs["trades"].partition_by == ()


def test_a_circle_of_scopes_is_refused():
    net = Network("circle")
    one = source(net).where("one", "true", scope="x")
    one.where("two", "true", scope="y").where("three", "true", scope="x")
    (fault,) = faults(net)
    assert "without a circle" in fault.need
