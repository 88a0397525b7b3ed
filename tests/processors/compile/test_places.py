"""Which boxes may be placed on Spark, and what runs together there."""

from typing import Any

import pytest

from errata import Network, Stream, hopping, sliding, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.faults import NetworkError

FIELDS = {"key": "string", "at": "timestamp-millis", "desk": "string", "n": "long"}
SOURCE: dict[str, Any] = {
    "fields": FIELDS, "identity": ["key"], "event_time": "at", "keep": "1d", "partition_by": ["key"]
}  # fmt: skip
COUNT: dict[str, Any] = {"by": ["desk"], "window": tumbling("1m"), "c": "count(*)"}


def network(place: str | None = "spark") -> tuple[Network, Stream]:
    net = Network("placed", place=place)
    trades = net.source("trades", **SOURCE)
    return net, trades


def refused(net: Network) -> str:
    with pytest.raises(NetworkError) as caught:
        compile_network(net)
    return str(caught.value)


def jobs(net: Network) -> dict[str, tuple[str, ...]]:
    scopes = compile_network(net).topology.scopes.values()
    return {scope.name: scope.boxes for scope in scopes if scope.on_spark}


def test_a_network_on_spark_places_all_boxes_there_but_those_that_say_process() -> None:
    net, trades = network()
    trades.where("few", "n > 1").map("twice", m="n * 2", keep="1d")
    trades.where("here", "n > 2", place="process")
    assert jobs(net) == {"few": ("few", "twice")}
    assert compile_network(net).topology.scope_of("here") == "trades"


def test_boxes_without_keep_between_them_are_one_job_and_an_exchange_in_it_has_no_topic() -> None:
    net, trades = network()
    few = trades.where("few", "n > 1")
    lagged = few.lag("lagged", by=["desk"], was="n")
    lagged.aggregate("last", by=["desk"], window=sliding(rows=3), total="sum(n)", keep="1d")
    boxes = ("few", "lagged.exchange", "lagged", "last")
    assert jobs(net) == {"few": boxes}
    assert compile_network(net).topology.topics == ("trades", "last")


def test_behind_a_connection_point_another_job_begins_and_aggregates_are_apart() -> None:
    net, trades = network()
    few = trades.where("few", "n > 1", keep="1d")
    few.lag("lagged", by=["key"], was="n", keep="1d")
    few.map("twice", m="n * 2", keep="1d")
    few.aggregate("one", **COUNT)
    few.aggregate("other", **COUNT)
    assert jobs(net) == {
        "few": ("few",),
        "lagged": ("lagged", "twice"),
        "one": ("one",),
        "other": ("other",),
    }


def test_boxes_that_an_arc_without_keep_brings_together_become_one_job() -> None:
    net, trades = network()
    few, many = trades.where("few", "n > 1", scope="own"), trades.where("many", "n > 2")
    net.union("all", few, many, tag="from", keep="1d")
    assert jobs(net) == {"own": ("few", "many", "all")}


def test_no_sweeper_answers_what_a_join_on_spark_looks_up() -> None:
    net, trades = network()
    other = trades.map("other", m="n", keep="1d")
    net.join("met", {"t": trades, "o": other}, on=["desk"], both="t.n + o.m", keep="1d")
    assert compile_network(net).replayed_points() == []


def test_a_box_of_a_process_behind_a_job_has_a_scope_of_its_own() -> None:
    net, trades = network(None)
    few = trades.where("few", "n > 1", place="spark", keep="1d")
    few.map("twice", m="n * 2")
    assert compile_network(net).topology.scope_of("twice") == "few-readers"


# -------------------------------------------------------------------------------- what is refused


def test_a_place_that_there_is_not_is_told() -> None:
    net, trades = network(None)
    trades.where("few", "n > 1", place="moon")
    assert "needs place='spark' or place='process'; found 'moon'" in refused(net)


def test_a_loop_is_not_placed_on_spark() -> None:
    net, trades = network()
    net.iterate("loop", trades, lambda each: each.where("same", "n > 1"))
    assert "loop" in refused(net)
    assert "write place='process'" in refused(net)


def test_a_process_does_not_look_up_what_a_job_emits_without_keep() -> None:
    net, trades = network(None)
    trades.where("few", "n > 1", place="spark").lag("lagged", by=["desk"], was="n")
    assert "box 'few' on Spark takes several epochs at once" in refused(net)


def test_outputs_of_a_route_do_not_meet_again_through_two_jobs() -> None:
    net, trades = network()
    low, high = trades.route(low="n < 5", high="rest", scope="routed")
    net.union("both", low.map("mapped", n="n + 1", scope="apart"), high, keep="1d")
    told = refused(net)
    assert "both" in told
    assert "all in one job on Spark" in told


def test_results_at_the_close_of_windows_do_not_wait_for_other_sources() -> None:
    for keep in (None, "1d"):
        net, trades = network()
        more = net.source("more", **SOURCE)
        few = trades.where("few", "n > 1", keep=keep)
        rows = hopping(rows=3, every=3)
        few.aggregate("counted", by=["desk"], window=rows, c="count(*)")
        net.join("met", {"f": few, "m": more}, on=["desk"], both="f.n + m.n", keep="1d")
        if keep is None:
            assert "keeps no history; give box 'few' keep=\"...\"" in refused(net)
    met = compile_network(net).topology.jobs["met"]
    assert met.boxes == ("met-f.exchange", "met-m.exchange", "met")


def test_results_at_the_close_of_windows_wait_for_all_sources_of_their_job() -> None:
    net, trades = network()
    few = trades.where("few", "n > 1")
    more = net.source("more", **SOURCE)
    met = net.join("met", {"f": few, "m": more}, on=["desk"], both="f.n + m.n")
    met.aggregate("sums", by=["desk"], window=tumbling("1h"), s="sum(both)")
    topology = compile_network(net).topology
    assert {"few", "met", "sums"} < {*topology.jobs["few"].boxes}
    assert topology.sources_behind("few") == ("trades", "more")
    few.aggregate("early", by=["desk"], window=tumbling("1h"), s="sum(n)", scope="few")
    assert "boxes that come from the same sources" in refused(net)


def test_arcs_that_a_box_on_spark_reads_have_as_many_partitions() -> None:
    net, trades = network()
    more = net.source("more", **SOURCE)
    net.union("both", trades, more, keep="1d")
    plan = compile_network(net)
    with pytest.raises(NetworkError, match="both: needs inputs with the same number of partitions"):
        plan.placed({"trades": 2, "more": 3})
    assert plan.placed({"trades": 2, "more": 2}).placement.partitions["both"] == 2


def test_cycles_of_scopes_are_told_however_many_there_are() -> None:
    net, trades = network(None)
    first = trades.where("one", "n > 1", scope="a").where("two", "n > 2", scope="b")
    first.where("three", "n > 3", scope="a").where("four", "n > 4", scope="b")
    assert "scopes without a cycle" in refused(net)


def test_a_source_on_spark_is_a_job_of_its_own_and_needs_no_exchange_by_identity() -> None:
    net, trades = network()
    trades.where("few", "n > 1", place="process")
    net.source("orders", rekey=True, **SOURCE)
    net.source("here", rekey=True, place="process", **SOURCE)
    topology = compile_network(net).topology
    assert [*topology.jobs] == ["ingest.trades", "ingest.orders"]
    assert topology.process_scopes == ["ingest.here", "here-owner", "trades"]
    assert "orders.exchange" not in topology.arcs
    assert topology.is_written_by_job("trades")
    assert not topology.is_written_by_job("few")
