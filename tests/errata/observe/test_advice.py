"""What a connection point would save, predicted, and measured by adding it."""

from dataclasses import replace

import pytest

from errata import Network, hopping, tumbling
from errata.observe.advice import advise
from errata.observe.costs import assumed_load, counted_load
from errata.processors.compile.compiler import compile_network
from errata.study.cases import EPOCH, Case
from errata.study.measure import lines, measured, replaced, send
from errata.testing import Driver

CHAIN = Case("points", window=100, overlap=10, rate=0.0002, depth=3, mode="adaptive", points=())
TUMBLING = replace(CHAIN, overlap=1, depth=2)


def counted(case: Case):
    """Return a network that has run, its plan, and its load."""
    tuples = case.tuples()
    with Driver(case.network()) as driver:
        for some in [lines(tuples), *(replaced(each) for each in case.corrections())]:
            send(driver, some)
        return case.network(), driver.plan, counted_load(driver.plan, driver.counts())


@pytest.mark.parametrize("case", [CHAIN, TUMBLING], ids=["overlapping", "tumbling"])
def test_what_is_predicted_is_what_is_measured_after_adding_it(case):
    advice = advise(*counted(case))
    assert {each.arc for each in advice} == {*case.arcs()}
    for each in advice:
        before, after = (
            measured(replace(case, points=points)).alone for points in ((), (each.arc,))
        )
        assert each.before.tuples + each.before.results == pytest.approx(before, rel=0.1)
        assert each.after.tuples + each.after.results == pytest.approx(after, rel=0.1)
    assert case.count > EPOCH  # it ran in several epochs


def test_the_best_comes_first():
    saved = [each.saved_bytes - each.written_bytes for each in advise(*counted(CHAIN))]
    assert saved == sorted(saved, reverse=True)


def of_sums(**more) -> Network:
    net = Network("sums")
    trades = net.source(
        "trades", fields={"key": "long", "at": "timestamp-millis", "x": "long"},
        identity=["key"], event_time="at", keep="1d",
    )  # fmt: skip
    minutes = trades.aggregate("minutes", by=[], window=tumbling("1m"), x="sum(x)", **more)
    minutes.aggregate("hours", by=[], window=hopping("1h", every="30m"), x="sum(x)", keep="1d")
    return net


def test_a_load_may_be_assumed():
    net = of_sums()
    plan = compile_network(net)
    load = assumed_load(plan, rate=10, corrected=0.01, groups=1)
    assert load.corrections == {"trades": 0.1}
    assert load.in_window == {"minutes": 600, "hours": 60}
    assert load.tuples["minutes"] == pytest.approx(1 / 60)
    (advice,) = advise(net, plan, load)
    assert advice.arc == "minutes"
    assert advice.users == ("minutes", "hours")
    assert (advice.before.replays, advice.after.replays) == (1, 0)
    assert advice.before.tuples == 600  # of a minute; hours fetch their results
    assert (advice.after.tuples, advice.after.results) == (0, pytest.approx(1 + 2))
    assert advice.written == pytest.approx(1 / 60 + 0.1)


def test_what_is_a_connection_point_is_no_candidate():
    net = of_sums(keep="1d")
    plan = compile_network(net)
    assert advise(net, plan, assumed_load(plan, rate=10, corrected=0.01, groups=1)) == []
