"""The networks that the laws are tried on: as a user declares them, and as the oracle knows them.

trades -> wanted (where) -> scaled (map) -> aggregates, in pairs that must agree (L5)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from errata import Network, Stream, hopping, tumbling
from processors.plan import Plan, compile_network
from tests.laws import oracle
from tests.laws.oracle import Aggregate, Box, closed_at, count, largest, mean, total

PARTITIONS = 2
LATENESS, KEEP, IDLE_AFTER_MS = 3, 45, 1500
SOURCE = "trades"

FRONT: tuple[Box, ...] = (
    oracle.Where("wanted", SOURCE, lambda t: t["amount"] is not None and t["amount"] >= -1),
    oracle.Map("scaled", "wanted", {"value": lambda t: t["amount"] * 2}),
)
SUMS = {
    "n": "count(*)",
    "total": "sum(value)",
    "mean": "avg(size)",
    "price": "avg(amount)",
    "biggest": "max(value)",
}
SUMS_ORACLE = Aggregate(
    "",
    "scaled",
    ("product", "desk"),
    12,
    8,
    {
        "n": count(),
        "total": total("value"),
        "mean": mean("size"),
        "price": mean("amount", places=6),
        "biggest": largest("value"),
    },
)
FIRST = {"n": "count(*)", "total": "sum(value)", "biggest": "max(value)"}
FIRST_ORACLE = Aggregate(
    "first",
    "scaled",
    ("product", "desk"),
    8,
    8,
    {"n": count(), "total": total("value"), "biggest": largest("value")},
)
SECOND = {"all": "sum(total)", "top": "max(biggest)", "trades": "avg(n)"}
SECOND_ORACLE = Aggregate(
    "",
    "first",
    ("product",),
    24,
    12,
    {
        "all": total("total"),
        "top": largest("biggest"),
        "trades": mean("n"),
    },
    time=closed_at,
)


@dataclass(frozen=True)
class Shape:
    """A network, what the oracle makes of it, and which arcs must carry the same revisions.

    Args:
        plan: The network, compiled.
        boxes: The oracle's, in topological order.
        agree: Pairs of arcs of one content, made in different modes.
    """

    plan: Plan
    boxes: tuple[Box, ...]
    agree: tuple[tuple[str, str], ...]


def _front(*, kept: bool) -> tuple[Network, Stream]:
    net = Network("tape")
    trades = net.source(
        SOURCE,
        topic="swaps",
        format="json",
        fields={
            "key": "string",
            "at": "timestamp-millis",
            "product": "string",
            "desk": "string?",
            "amount": "decimal(9,2)?",
            "size": "long?",
        },
        identity=["key"],
        event_time="at",
        partition_by=["product"],
        partitions=PARTITIONS,
        lateness=LATENESS,
        idle_after=IDLE_AFTER_MS,
        keep=KEEP,
    )
    wanted = trades.where("wanted", "amount >= -1", scope="front")
    scaled = wanted.map("scaled", fields={"value": "amount * 2"}, keep=KEEP if kept else None)
    return net, scaled


def _sums(scaled: Stream, name: str, *, scope: str, mode: str, keep: int | None = None) -> Stream:
    return scaled.aggregate(
        name,
        by=["product", "desk"],
        window=hopping(12, every=8),
        mode=mode,
        scope=scope,
        keep=keep,
        fields=SUMS,
    )


def _shape(
    net: Network, boxes: tuple[Box, ...], *agree: tuple[str, str], every_arc: bool = False
) -> Shape:
    plan = compile_network(net, every_arc=every_arc).placed({SOURCE: PARTITIONS})
    return Shape(plan, FRONT + boxes, agree)


def apart(*, kept: bool) -> Shape:
    """Upstream and downstream in processes of their own."""
    net, scaled = _front(kept=kept)
    _sums(scaled, "up", scope="a", mode="upstream")
    _sums(scaled, "down", scope="b", mode="downstream", keep=KEEP)
    boxes = tuple(replace(SUMS_ORACLE, name=name) for name in ("up", "down"))
    return _shape(net, boxes, ("up", "down"))


def together(*, kept: bool) -> Shape:
    """Upstream and downstream in one scope, behind one input."""
    net, scaled = _front(kept=kept)
    _sums(scaled, "up", scope="both", mode="upstream")
    _sums(scaled, "down", scope="both", mode="downstream", keep=KEEP)
    boxes = tuple(replace(SUMS_ORACLE, name=name) for name in ("up", "down"))
    return _shape(net, boxes, ("up", "down"))


def further_down(*, kept: bool) -> Shape:
    """Downstream with the results kept behind a map and a filter, in another scope."""
    net, scaled = _front(kept=kept)
    _sums(scaled, "up", scope="a", mode="upstream")
    down = _sums(scaled, "down", scope="b", mode="downstream")
    named = down.map("named", fields={"double": "n * 2"}, scope="c" if kept else "b")
    named.where("shown", "product != 'fig'", keep=KEEP)
    boxes = (
        *(replace(SUMS_ORACLE, name=name) for name in ("up", "down")),
        oracle.Map("named", "down", {"double": lambda t: t["n"] * 2}),
        oracle.Where("shown", "named", lambda t: t["product"] != "fig"),
    )
    return _shape(net, boxes, ("up", "down"), every_arc=True)


def chain(*, kept: bool) -> Shape:
    """An aggregate over another's results; when not `kept`, the replay goes through the first."""
    net, scaled = _front(kept=True)
    first = scaled.aggregate(
        "first",
        by=["product", "desk"],
        window=tumbling(8),
        mode="downstream" if kept else "upstream",
        scope="one",
        keep=KEEP if kept else None,
        fields=FIRST,
    )
    for name, mode, scope in (("up", "upstream", "one"), ("down", "downstream", "two")):
        first.aggregate(
            name,
            by=["product"],
            window=hopping(24, every=12),
            mode=mode,
            scope=scope,
            keep=KEEP,
            fields=SECOND,
        )
    boxes = (FIRST_ORACLE, *(replace(SECOND_ORACLE, name=name) for name in ("up", "down")))
    return _shape(net, boxes, ("up", "down"))


SHAPES: tuple[Callable[..., Shape], ...] = (apart, together, chain, further_down)
