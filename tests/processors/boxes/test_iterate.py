"""Loops as boxes: fixpoints, what is left of them when a bound is met, and both ways to work."""

from dataclasses import dataclass, replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from errata import Network
from errata.processors.boxes.base import Live, difference
from errata.processors.boxes.iterate import Body, Iterate
from errata.processors.compile.compiler import compile_network
from errata.schemas import revisions as frames
from errata.schemas.fields import physical

SYMBOLS = "ABCDE"
FOLLOW = {"new": "coalesce(n.new, new)"}


@dataclass(frozen=True)
class Whole(Body):
    """A body that is evaluated whole in each round, linear or not."""

    is_linear = False  # type: ignore[assignment]


def network():
    net = Network("desk")
    renames = {"old": "string", "at": "timestamp-millis", "new": "string"}
    trades = {"key": "int", "at": "timestamp-millis", "symbol": "string", "size": "long"}
    given = {"event_time": "at", "keep": "1d"}
    return (
        net,
        net.source("renames", fields=renames, identity=["old"], **given),
        net.source("trades", fields=trades, identity=["key"], **given),
    )


def box(net) -> Iterate:
    found = compile_network(net).boxes["today"]
    assert isinstance(found, Iterate)
    return found


def renamed(rounds=4) -> Iterate:
    """Renames, each to the symbol of today."""
    net, renames, _ = network()
    net.iterate("today", renames, lambda x: further(x, renames), rounds=rounds)
    return box(net)


def further(x, renames, name="further"):
    return x.lookup(name, renames, on={"new": "old"}, alias="n", **FOLLOW)


def traded(rounds=4) -> Iterate:
    """Trades, each under the symbol of today; large ones come down to nine."""
    net, renames, trades = network()

    def body(x):
        text = "coalesce(n.new, symbol)"
        named = x.lookup("named", renames, on={"symbol": "old"}, alias="n", symbol=text)
        large, small = named.route(large="size > 9", small="rest")
        return net.union("both", large.map("less", size="coalesce(size - 1, size)"), small)

    net.iterate("today", trades, body, rounds=rounds)
    return box(net)


def tuples(arc, rows):
    return pl.DataFrame(rows, schema=physical(arc.fields), orient="row")


def links(arc, chosen):
    return tuples(arc, [(old, 0, new) for old, new in sorted(chosen.items())])


def in_order(frame):
    return frame.sort(frame.columns)


def run(box, before, after):
    """Take a box from one content of its inputs to another; returns its outcome."""
    arcs = box.entering.values()
    revisions = [
        difference(arc, one, other) for arc, one, other in zip(arcs, before, after, strict=True)
    ]
    work = box.process(*revisions, live=Live(), wm_before=0, wm=0)
    try:
        next(work)
        work.send(list(after))
    except StopIteration as stop:
        return stop.value
    raise AssertionError("asks twice")


RENAMES = st.dictionaries(st.sampled_from(SYMBOLS), st.sampled_from(SYMBOLS + "X"))
TRADES = st.dictionaries(
    st.integers(0, 4), st.tuples(st.sampled_from(SYMBOLS + "X"), st.integers(7, 14))
)


def content(box, trades, chosen):
    rows = [(key, 0, symbol, size) for key, (symbol, size) in sorted(trades.items())]
    return [
        links(arc, chosen) if name == "renames" else tuples(arc, rows)
        for name, arc in box.entering.items()
    ]


@pytest.mark.parametrize("make", [renamed, traded])
@given(chosen=st.tuples(RENAMES, RENAMES), trades=st.tuples(TRADES, TRADES))
def test_only_what_changed_goes_round_and_the_whole_gives_the_same(make, chosen, trades):
    linear = make()
    whole = replace(linear, body=Whole(**vars_of(linear.body)))
    assert linear.body.is_linear
    assert not whole.body.is_linear
    before, after = (content(linear, t, c) for t, c in zip(trades, chosen, strict=True))
    one, other = (run(each, before, after) for each in (linear, whole))
    assert_frame_equal(in_order(one.revisions), in_order(other.revisions))
    told = [
        sorted(zip(r.tuples.rows(), r.reasons, strict=True))
        for o in (one, other)
        for r in o.refused
    ]
    assert told in ([], [told[0], told[0]] if told else [])
    emitted = linear.recompute(*before)
    left = pl.concat([emitted, frames.entering(one.revisions, emitted.columns)])
    gone = frames.leaving(one.revisions, emitted.columns)
    left = left.join(gone, on=left.columns, how="anti", nulls_equal=True)
    assert_frame_equal(in_order(left), in_order(linear.recompute(*after)))


def told(outcome):
    return [sorted(zip(r.tuples.rows(), r.reasons, strict=True)) for r in outcome.refused]


def vars_of(body):
    return {name: getattr(body, name) for name in ("variable", "boxes", "gives")}


@given(chosen=RENAMES)
def test_a_chain_ends_at_todays_symbol_and_a_circle_is_left_out(chosen):
    def today(old):
        seen = [old]
        while seen[-1] in chosen and chosen[seen[-1]] != seen[-1]:
            seen.append(chosen[seen[-1]])
            if len(seen) > len(SYMBOLS) + 1:
                return None
        return seen[-1]

    found = {old: new for old, _, new in renamed(rounds=9).recompute(*content_of(chosen)).rows()}
    assert found == {old: today(old) for old in chosen if today(old) is not None}


def content_of(chosen):
    return [links(renamed().entering["renames"], chosen)]


def test_the_bound_is_met_when_the_last_round_still_leaves_something_to_do():
    chain = {"A": "B", "B": "C", "C": "D"}  # A takes two rounds
    enough, short = renamed(rounds=2), renamed(rounds=1)
    assert [t[2] for t in enough.recompute(*content_of(chain)).sort("old").rows()] == ["D"] * 3
    assert [t[0] for t in short.recompute(*content_of(chain)).sort("old").rows()] == ["B", "C"]


def test_what_never_settles_is_refused_once_with_its_last_values():
    loop = renamed(rounds=100)
    empty, circle = content_of({}), content_of({"A": "B", "B": "A", "C": "D"})
    outcome = run(loop, empty, circle)
    assert [t[2] for t in frames.entering(outcome.revisions, ["old", "at", "new"]).rows()] == ["D"]
    (refused,) = outcome.refused
    assert refused.arc == "today"
    assert refused.tuples.rows() == [("A", 0, "B"), ("B", 0, "A")]
    assert list(refused.reasons) == [
        "still changes after 100 rounds of loop 'today': new A, B, A",
        "still changes after 100 rounds of loop 'today': new B, A, B",
    ]
    more = content_of({"A": "B", "B": "A", "C": "D", "E": "A"})
    (refused,) = run(loop, circle, more).refused
    assert refused.tuples.rows() == [("E", 0, "A")]
    broken = content_of({"A": "B", "B": "C", "C": "D", "E": "A"})
    outcome = run(loop, more, broken)
    assert not outcome.refused
    found = sorted(frames.entering(outcome.revisions, ["old", "new"]).rows())
    assert found == [("A", "D"), ("B", "D"), ("E", "D")]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("rounds", [1, 7, 8, 9, 16, 30, 31, 100])
def test_rounds_that_are_passed_over_leave_a_circle_where_they_would_have(size, rounds):
    circle = dict(zip(SYMBOLS[:size], SYMBOLS[1:size] + SYMBOLS[0], strict=True))
    loop = renamed(rounds=rounds)
    (refused,) = run(loop, content_of({}), content_of(circle)).refused
    wanted = [
        ", ".join(SYMBOLS[(number + k + 1) % size] for k in range(max(rounds - 1, 0), rounds + 2))
        for number in range(size)
    ]
    assert [reason.partition(": new ")[2] for reason in refused.reasons] == wanted
    whole = replace(loop, body=Whole(**vars_of(loop.body)))
    assert told(run(whole, content_of({}), content_of(circle))) == told(
        run(loop, content_of({}), content_of(circle))
    )


def test_a_tuple_that_changed_and_still_does_not_settle_is_refused_again():
    loop = renamed(rounds=5)
    before = content_of({"A": "B", "B": "A", "C": "A"})
    (refused,) = run(loop, before, content_of({"A": "B", "B": "A", "C": "B"})).refused
    assert refused.tuples.rows() == [("C", 0, "B")]


def test_only_trades_that_were_touched_go_round_when_nothing_else_was():
    loop = traded()
    chosen = {"A": "B", "B": "C"}
    seen = []

    class Watched(Body):
        def run_round(self, tuples, constants):
            seen.append(sorted(tuples["key"].to_list()))
            return super().run_round(tuples, constants)

    loop = replace(loop, body=Watched(**vars_of(loop.body)))
    before = content(loop, {1: ("A", 1), 2: ("A", 1)}, chosen)
    after = content(loop, {1: ("A", 1), 2: ("A", 2)}, chosen)
    outcome = run(loop, before, after)
    assert frames.entering(outcome.revisions, ["key", "symbol"]).rows() == [(2, "C")]
    assert {key for keys in seen for key in keys} == {2}


def test_a_loop_in_which_each_tuple_is_alone_asks_for_nothing():
    net, _, trades = network()
    net.iterate(
        "today", trades, lambda x: x.map("less", size="if(size > 9, coalesce(size - 1, 0), size)")
    )
    loop = box(net)
    assert not loop.requests_history
    assert compile_network(net).asked() == []


def test_a_body_that_is_not_linear_refuses_by_identity_too():
    net, renames, _ = network()

    def body(x):
        options = {"window": None, "emit": "on_update"}
        most = x.aggregate("most", by=["at"], fields={"top": "max(new)"}, **options)
        text = "if(m.top = 'Y', 'X', if(new = 'X', 'Y', new))"
        return x.lookup("turned", most, on=["at"], alias="m", new=text)

    net.iterate("today", renames, body, rounds=6)
    loop = box(net)
    assert not loop.body.is_linear
    arc = loop.entering["renames"]
    rows = [("A", 0, "X"), ("B", 0, "K"), ("C", 1, "K")]
    outcome = run(loop, [tuples(arc, [])], [tuples(arc, rows)])
    assert [t[0] for t in frames.entering(outcome.revisions, ["old"]).rows()] == ["C"]
    (refused,) = outcome.refused
    assert [t[0] for t in refused.tuples.rows()] == ["A", "B"]


def test_a_tuple_that_comes_and_goes_is_told_so():
    net, _, trades = network()

    def body(x):
        there = trades.lookup(
            "there", x, on=["key"], alias="x", size="if(x.key is null, size, cast(-1 as bigint))"
        )
        return there.where("absent", "size >= 0")

    net.iterate("today", trades, body, rounds=3)
    loop = box(net)
    arc = loop.entering["trades"]
    outcome = run(loop, [tuples(arc, [])], [tuples(arc, [(1, 0, "A", 5)])])
    assert outcome.revisions.is_empty()
    (refused,) = outcome.refused
    assert refused.tuples.rows() == [(1, 0, "A", 5)]
    assert refused.reasons[0].endswith("symbol A, absent, A; size 5, absent, 5")
