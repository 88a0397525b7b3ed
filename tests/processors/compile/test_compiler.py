"""A network that can't work is refused before anything runs, one message per fault."""

import pytest

from errata import Network, NetworkError, hopping, tumbling
from errata.processors.compile.compiler import compile_network

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
    "event time by a number": (
        lambda t: t.map("m", at="price"), "m", "decimal(9,2)", "correct the expression",
    ),
    "replay through a new event time": (
        lambda t: t.map("m", at="at").aggregate("a", by=[], window=WINDOW, n="count(*)"), "a",
        "map 'm' replaces the event time", "give map 'm' keep=",
    ),
    "a scope that is not its own": (
        lambda t: t.aggregate("a", by=["desk"], window=WINDOW, n="count(*)", scope="trades",
                              partitions=2),
        "a", "scope 'trades'", "leave its scope= out",
    ),
    "partitions of a map": (
        lambda t: t.map("m", x="1", partitions=0), "m", "partitions above 0", "positive",
    ),
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
    assert fault.place.file == "test_compiler.py"
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
        ({"event_time": "price"}, "an event time"),
        ({"envelope": "xml"}, "an envelope"),
        ({"format": "csv"}, "a format"),
        ({"keep": "1 fortnight"}, "a duration for keep"),
        ({"partitions": 0}, "partitions above 0"),
        ({"partition_by": ["nope"]}, "partition_by"),
        ({"fields": None}, "needs fields"),
        ({"identity": None}, "an identity"),
        ({"envelope": "debezium", "format": "csv"}, "a format of avro, protobuf, json"),
        ({"start": "tomorrow"}, "a start of earliest"),
        ({"event_time": "key"}, "an event time"),
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
    with pytest.raises(NetworkError, match=r"test_compiler\.py:\d+"):
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
        assert [a.arc.name for a in plan.paths["second"].anchors] == [anchor]
        assert plan.radius_ms(anchor) == radius * 60_000


def test_a_copy_is_clustered_by_the_fields_that_all_its_requests_name():
    net = Network("clustered")
    trades = source(net)
    trades.aggregate("a", by=["product", "desk"], window=WINDOW, mode="upstream", n="count(*)")
    assert compile_network(net).requested_by("trades") == ("product", "desk")
    trades.aggregate("b", by=["desk"], window=WINDOW, mode="upstream", n="count(*)")
    assert compile_network(net).requested_by("trades") == ("desk",)
    trades.aggregate("c", by=["product"], window=WINDOW, mode="upstream", n="count(*)")
    assert compile_network(net).requested_by("trades") == ()
    assert compile_network(net).requested_by("a") == ()


def test_partition_by_is_inferred_from_what_all_aggregates_group_by():
    net = Network("inferred")
    trades = source(net)
    trades.aggregate("a", by=["product", "desk"], window=WINDOW, n="count(*)")
    trades.where("w", "price > 1").aggregate("b", by=["product"], window=WINDOW, n="count(*)")
    assert compile_network(net).topology.arcs["trades"].partition_by == ("product",)
    trades.aggregate("c", by=["desk"], window=WINDOW, n="count(*)")
    plan = compile_network(net)
    assert plan.topology.arcs["trades"].partition_by == ("product", "desk")
    assert list(plan.requested) == ["b.exchange", "c.exchange"]


def test_groups_across_partitions_are_brought_together_by_an_exchange():
    net = Network("across")
    trades = source(net, partition_by=["product"])
    trades.aggregate("near", by=["product", "desk"], window=WINDOW, n="count(*)")
    trades.aggregate("far", by=["desk"], window=WINDOW, n="count(*)", partitions=3)
    plan = compile_network(net).placed({"trades": 2})
    assert plan.deployment.topic("far.exchange") == "across.far.exchange"
    assert plan.topology.scope_of("far.exchange") == plan.topology.scope_of("near") == "trades"
    assert plan.topology.scope_of("far") == "far"
    assert plan.topology.arcs["far"].partition_by == ("desk",)
    assert [plan.placement.partitions[a] for a in ("trades", "near", "far.exchange", "far")] == [
        2,
        2,
        3,
        3,
    ]
    assert plan.placement.tasks("far") == ["far.0", "far.1", "far.2"]
    assert not plan.paths["near"].everywhere
    assert plan.replayed_everywhere("far") == ["trades"]
    assert plan.paths["far"].anchors[0].pushed == {"desk": "desk"}


def test_a_map_that_changes_the_partition_has_an_exchange_and_one_writer():
    net = Network("moved")
    trades = source(net, partition_by=["product"])
    trades.map("m", product="desk", keep="1d").where("w", "price > 1")
    plan = compile_network(net).placed({"trades": 2})
    assert plan.boxes["m.exchange"].arc.exchange
    assert not plan.topology.arcs["m"].exchange
    assert plan.topology.scope_of("m") == plan.topology.scope_of("w") == "m"
    assert not plan.topology.arcs["m.exchange"].is_connection_point


def test_a_map_that_changes_the_event_time_anchors_what_is_behind_it():
    net = Network("shifted")
    shifted = source(net, fields={**FIELDS, "booked": "timestamp-millis?"}).map(
        "m", at="booked", keep="1d"
    )
    shifted.aggregate("a", by=["product"], window=WINDOW, n="count(*)")
    plan = compile_network(net)
    assert [anchor.arc.name for anchor in plan.paths["a"].anchors] == ["m"]
    assert not plan.topology.arcs["m"].fields["at"].optional


def test_outputs_of_a_route_are_disjoint_and_other_unions_get_a_tag():
    net = Network("united")
    trades = source(net)
    big, small = trades.route(big="price > 10", small="rest")
    again, _ = trades.route(again="price > 5", never="rest")
    net.union("parted", big.map("more", x="1").map("less", x="2"), small.map("same", x="1"))
    net.union("both", big, again)
    arcs = compile_network(net).topology.arcs
    assert arcs["parted"].identity == ("key",)
    assert arcs["both"].identity == ("key", "source")
    assert str(arcs["both"].fields["source"]) == "string"


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"fields": {**FIELDS, "price": "double"}}, "price double"),
        ({"identity": ["key", "product"]}, "key, product"),
        ({"fields": {**FIELDS, "t": "timestamp-millis"}, "event_time": "t"}, "t timestamp"),
        ({"partition_by": ["key"]}, "product"),
    ],
)
def test_a_union_of_arcs_that_are_not_alike_is_refused(other, found):
    net = Network("faulty")
    one = source(net, partition_by=["product"])
    two = source(net, "other", **({"partition_by": ["product"]} | other))
    net.union("both", one, two)
    assert any(found in fault.found for fault in faults(net))


def test_a_union_needs_arcs_and_a_free_tag():
    net = Network("faulty")
    trades = source(net)
    with pytest.raises(NetworkError, match="two or more different arcs"):
        net.union("both", trades, trades)
    net.union("both", trades, source(net, "other"), tag="price")
    (fault,) = faults(net)
    assert "'price'" in fault.found


def test_inputs_of_different_partition_counts_are_refused_where_they_are_found():
    net = Network("faulty")
    net.union("both", source(net), source(net, "other"))
    plan = compile_network(net)
    with pytest.raises(NetworkError, match="2 of 'trades', 3 of 'other'"):
        plan.placed({"trades": 2, "other": 3})


@pytest.mark.parametrize("scope", ["ingest.trades", "a.b", "", "a b", "día"])
def test_a_scope_has_a_name_that_its_topics_may_have(scope):
    net = Network("faulty")
    source(net).aggregate("a", by=["product"], window=WINDOW, scope=scope, n="count(*)")
    (fault,) = faults(net)
    assert (fault.box, fault.need) == ("a", "a scope name of letters, digits, _ and -")
    assert fault.found == repr(scope)
    assert fault.place is not None
    assert fault.place.file == "test_compiler.py"


def test_a_sink_of_identities_that_move_between_partitions_stands_behind_an_exchange():
    net = Network("sunk")
    trades = source(net, partition_by=["product"])
    trades.sink("out.trades", envelope="upsert")
    trades.aggregate("a", by=["product"], window=WINDOW, n="count(*)").sink("out.a", format="json")
    plan = compile_network(net).placed({"trades": 2}, sink_partitions={"out.a": 5})
    assert [(sink.arc, sink.topic) for sink in plan.topology.sinks] == [
        ("trades-sink", "out.trades"),
        ("a", "out.a"),
    ]
    assert plan.topology.arcs["trades-sink"].partition_by == ("key",)
    assert "trades-sink" not in plan.topology.topics
    assert plan.placement.sink_partitions == {"out.trades": 2, "out.a": 5}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"topic": "out", "envelope": "append"}, "'append'"),
        ({"topic": "out", "format": "xml"}, "'xml'"),
        ({"topic": "trades"}, "which 'trades' uses"),
    ],
)
def test_a_sink_that_cannot_work_is_refused_with_its_place(options, found):
    net = Network("faulty")
    source(net).sink(**options)
    (fault,) = faults(net)
    assert found in fault.found
    assert fault.place.file == "test_compiler.py"


def test_rest_is_the_last_output_of_a_route():
    net = Network("faulty")
    with pytest.raises(NetworkError, match="the last output"):
        source(net).route(small="rest", big="price > 10")


def test_a_circle_of_scopes_is_refused():
    net = Network("circle")
    one = source(net).where("one", "true", scope="x")
    one.where("two", "true", scope="y").where("three", "true", scope="x")
    (fault,) = faults(net)
    assert "without a cycle" in fault.need
