"""What the next version of a plan may have that the deployed one has not."""

import json
from collections.abc import Callable

import pytest

from errata import Network, Stream, tumbling
from errata.deploy.versions import (
    NotFilledError,
    check_requested,
    deployed_part,
    new_arcs,
    next_version,
)
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import Deployed, PlanMismatchError, added, as_deployed
from errata.processors.plan.plan import Deployment, Plan
from errata.processors.tasks.rebuild import CannotRebuildError

Declare = Callable[[Network, Stream], object]
HOURS = {"by": ["key"], "window": tumbling("1h")}


def network(*more: Declare) -> Network:
    net = Network("n")
    trades = net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "price": "long"},
        identity=["key"],
        event_time="at",
        keep="1d",
    )
    real = trades.where("real", "price > 0")
    sums = real.aggregate("sums", total="sum(price)", **HOURS)
    sums.sink("sums")
    for declare in more:
        declare(net, Stream(net, "real"))
    return net


def plan(net: Network) -> Plan:
    made = compile_network(net)
    return made.placed(dict.fromkeys(made.topology.sources, 2))


def deployed(net: Network) -> Deployed:
    return Deployed(Deployment("n", "d"), json.loads(json.dumps(plan(net).describe())))


def next_to(*more: Declare) -> Plan:
    """Return what follows when a network has gained something."""
    net, there = network(*more), deployed(network())
    old = as_deployed(plan(deployed_part(net, there)), there)
    assert old.fingerprint == plan(network()).fingerprint
    return next_version(old, plan(net))


def counts(net: Network, real: Stream) -> Stream:
    return real.aggregate("counts", c="count(*)", **HOURS)


def far(net: Network, real: Stream, **more) -> Stream:
    return real.aggregate("far", c="count(*)", place="spark", scope="far", **HOURS, **more)


def test_a_plan_with_more_boxes_is_not_the_deployed_one_and_backfill_is_named():
    net = network(lambda net, real: counts(net, real).where("many", "c > 2").sink("many"))
    assert added(plan(net), deployed(network())) == ["counts", "many"]
    with pytest.raises(PlanMismatchError, match="`errata backfill NET counts many` fills"):
        as_deployed(plan(net), deployed(network()))


def test_a_box_that_is_no_longer_there_is_refused_by_name():
    def without(net: Network, real: Stream) -> None:
        del net.declarations["sums"]
        net.sinks.clear()

    with pytest.raises(PlanMismatchError, match=r"no longer has 'sums'.*; put it back"):
        added(plan(network(counts, without)), deployed(network()))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda net, real: Stream(net, "real").sink("more"), "sink 'more'"),
        (lambda net, real: net.sinks.clear(), "sink 'sums'"),
        (
            lambda net, real: net.source(
                "more", fields={"k": "string", "t": "timestamp-millis"}, event_time="t",
                identity=["k"],
            ),
            "sources 'more'",
        ),
    ],
)  # fmt: skip
def test_whatever_else_differs_is_refused_by_name(change: Declare, told: str):
    with pytest.raises(PlanMismatchError, match=f"another plan .*{told}.*differ"):
        added(plan(network(counts, change)), deployed(network()))


def test_a_box_that_takes_a_deployed_one_into_its_scope_is_refused():
    before = network(lambda net, real: Stream(net, "trades").where("spare", "price > 1"))

    def takes(net: Network, real: Stream) -> None:
        spare = Stream(net, "trades").where("spare", "price > 1")
        spare.aggregate("far", c="count(*)", place="spark", keep="1d", **HOURS)

    with pytest.raises(PlanMismatchError, match="scope 'trades' differ"):
        added(plan(network(takes)), deployed(before))


def test_new_arcs_are_those_that_are_emitted_and_were_not_there():
    new = next_to(lambda net, real: counts(net, real).map("twice", d="c * 2"))
    assert (new.deployment.version, new.deployment.id) == (2, "d")
    assert new_arcs(plan(network()), new) == ["twice"]
    assert new.deployment.topic("twice") == "n.twice"
    sunk = next_to(lambda net, real: counts(net, real).map("twice", d="c * 2").sink("s"),
                   lambda net, real: Stream(net, "counts").sink("t"))  # fmt: skip
    assert new_arcs(plan(network()), sunk) == ["counts", "twice"]


def test_an_exchange_is_not_filled():
    new = next_to(lambda net, real: real.aggregate("by_price", by=["price"], c="count(*)",
                                                   window=tumbling("1h")))  # fmt: skip
    assert "by_price.exchange" in new.topology.topics
    assert new_arcs(plan(network()), new) == ["by_price"]


def test_an_arc_without_a_topic_can_be_read_in_its_own_scope_only():
    with pytest.raises(PlanMismatchError, match=r"'real' stays inside scope 'trades'.*give 'far'"):
        next_to(lambda net, real: far(net, real, keep="1d"))


def test_an_arc_keeps_its_topic_when_it_gets_a_reader():
    with pytest.raises(PlanMismatchError, match=r"'sums' is deployed with a topic.*'big' another"):
        next_to(lambda net, real: Stream(net, "sums").where("big", "total > 5"))
    new = next_to(lambda net, real: Stream(net, "sums").where("big", "total > 5", scope="own"))
    assert new.topology.topics == ("trades", "sums", "big")


def test_jobs_on_spark_need_histories_to_make_their_states_anew():
    def job(net: Network, real: Stream, **more) -> None:
        Stream(net, "trades").aggregate("far", c="count(*)", place="spark", **HOURS, **more)

    with pytest.raises(CannotRebuildError, match="far keep no history"):
        next_to(job)
    assert "far" in next_to(lambda net, real: job(net, real, keep="1d")).topology.topics


def test_an_arc_that_gets_another_writer_gets_another_topic() -> None:
    """On Spark a connection point divides a job in two."""

    def split(keep: str | None) -> Plan:
        net = Network("n", place="spark")
        trades = net.source("trades", fields={"key": "string", "at": "timestamp-millis"},
                            identity=["key"], event_time="at", keep="1d")  # fmt: skip
        trades.where("few", "true", keep=keep).lag("lagged", by=["key"], was="key", keep="1d")
        return plan(net)

    for old, new in ((None, "1d"), ("1d", None)):
        assert next_version(split(old), split(new)).deployment.generations["lagged"] == 2


def test_boxes_that_nobody_asked_to_fill_are_named():
    def others(net: Network, real: Stream) -> None:
        counts(net, real).where("many", "c > 2")
        real.map("twice", d="price * 2")

    whole = plan(network(others))
    new = added(whole, deployed(network()))
    assert new == ["counts", "many", "twice"]
    check_requested(whole, requested=["many", "twice"], added=new)
    with pytest.raises(NotFilledError, match=r"'many' can do without: 'twice'; .*NET many twice`"):
        check_requested(whole, requested=["many"], added=new)
