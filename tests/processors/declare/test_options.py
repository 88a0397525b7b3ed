"""Keywords of boxes that are neither options nor results."""

import pytest

from errata import Network, NetworkError, tumbling
from errata.processors.compile.compiler import compile_network

FIELDS = {"key": "string", "at": "timestamp-millis", "x": "long"}


def two() -> tuple[Network, list]:
    net = Network("desk")
    options = {"fields": FIELDS, "identity": ["key"], "event_time": "at", "keep": "1d"}
    return net, [net.source(name, **options) for name in ("left", "right")]


DECLARE = {
    "map": lambda net, left, right, **more: left.map("made", **more),
    "route": lambda net, left, right, **more: left.route(made="x > 0", **more),
    "lag": lambda net, left, right, **more: left.lag("made", by=["key"], **more),
    "lookup": lambda net, left, right, **more: left.lookup("made", right, on=["key"], **more),
    "join": lambda net, left, right, **more: net.join(
        "made", {"l": left, "r": right}, on=["key"], **more
    ),
    "aggregate": lambda net, left, right, **more: left.aggregate(
        "made", window=tumbling("1m"), **more
    ),
}


@pytest.mark.parametrize("method", DECLARE)
@pytest.mark.parametrize(
    ("keyword", "value"),
    [("as_of", "at"), ("group_by", "key"), ("wndow", tumbling("1m")), ("keep_", None),
     ("partition", ["key"]), ("x", {"total": 1})],
)  # fmt: skip
def test_a_keyword_that_can_be_no_result_is_refused(method, keyword, value):
    net, arcs = two()
    with pytest.raises(NetworkError) as refused:
        DECLARE[method](net, *arcs, y="x", **{keyword: value})
    (fault,) = refused.value.faults
    assert (fault.need, fault.found) == (f"options that {method} has", f"{keyword}=")


@pytest.mark.parametrize(
    ("keyword", "remedy"),
    [
        ("partition", "write partitions="),
        ("keeps", "write keep="),
        ("xyz", "use one of mode, emit, "),
    ],
)
def test_the_nearest_option_is_named(keyword, remedy):
    _, (left, _) = two()
    with pytest.raises(NetworkError) as refused:
        left.aggregate("made", window=tumbling("1m"), n="count(*)", **{keyword: []})
    assert remedy in str(refused.value).replace("by, window, ", "")


def test_a_result_of_such_a_name_can_be_given_explicitly():
    net, arcs = two()
    arcs[0].map("made", fields={"as_of": "at"})
    assert "as_of" in compile_network(net).topology.arcs["made"].fields


@pytest.mark.parametrize(
    ("method", "keyword", "remedy"),
    [
        ("aggregate", "windw", "correct the expression, or write window= if that option is meant"),
        ("aggregate", "total", "correct the expression"),
        ("join", "mode", "correct the expression; join has no option mode="),
        ("map", "scop", "correct the expression, or write scope= if that option is meant"),
        ("lag", "offsets", "correct the expression, or write offset= if that option is meant"),
        ("lookup", "aliases", "correct the expression, or write alias= if that option is meant"),
    ],
)
def test_an_expression_that_is_none_may_be_a_mistyped_option(method, keyword, remedy):
    net, arcs = two()
    DECLARE[method](net, *arcs, **{keyword: "no_such_field"})
    with pytest.raises(NetworkError) as refused:
        compile_network(net)
    assert [fault.remedy for fault in refused.value.faults] == [remedy]
