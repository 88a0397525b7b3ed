"""What is declared: every box, sink and refusal knows the user's line."""

import inspect

import pytest

from errata import Network, NetworkError, tumbling

BOXES = {
    "where": lambda a, b: a.where("box", "x > 0"),
    "route": lambda a, b: a.route(box="x > 0"),
    "map": lambda a, b: a.map("box", y="x"),
    "lag": lambda a, b: a.lag("box", by=[], y="x"),
    "lookup": lambda a, b: a.lookup("box", b, on=["key"], y="b.x"),
    "aggregate": lambda a, b: a.aggregate("box", window=tumbling("1m"), y="sum(x)"),
    "union": lambda a, b: a.network.union("box", a, b),
    "join": lambda a, b: a.network.join("box", {"a": a, "b": b}, on=["key"], y="b.x"),
    "iterate": lambda a, b: a.network.iterate("box", a, lambda x: x.where("round", "x > 0")),
    "source": lambda a, b: a.network.source("box", event_time="at"),
}
REFUSED = {
    "none named": lambda a, b: a.map("box"),
    "not there": lambda a, b: a.lookup("box", "nowhere", on=["key"], y="b.x"),
    "there already": lambda a, b: a.where("b", "x > 0"),
    "one arc alone": lambda a, b: a.network.union("box", a),
    "not one of the loop": lambda a, b: a.network.iterate("box", a, lambda x: b),
    "rest first": lambda a, b: a.route(box="rest", other="x > 0"),
}


def arcs():
    net = Network("net")
    return [
        net.source(name, fields={"key": "long", "x": "long"}, identity=["key"], event_time="at")
        for name in "ab"
    ]


def line_of(declare):
    return f"test_network.py:{inspect.getsourcelines(declare)[1]}"


@pytest.mark.parametrize("kind", BOXES)
def test_a_box_knows_the_line_that_declares_it(kind):
    a, b = arcs()
    BOXES[kind](a, b)
    assert str(a.network.declarations["box"].place) == line_of(BOXES[kind])


def test_a_sink_knows_the_line_that_declares_it():
    a, _ = arcs()
    declare = lambda: a.sink("out")  # noqa: E731
    declare()
    assert str(a.network.sinks[0].place) == line_of(declare)


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused_names_the_line_that_declares_it(why):
    with pytest.raises(NetworkError) as refused:
        REFUSED[why](*arcs())
    (fault,) = refused.value.faults
    assert str(fault.place) == line_of(REFUSED[why])
