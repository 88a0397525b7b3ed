"""The networks on which the laws are checked, as a user declares them and as the oracle has them.

trades -> wanted (where) -> scaled (map) -> aggregates, in pairs that must agree (L5)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from errata import Network, Stream, hopping, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from tests.laws import oracle
from tests.laws.oracle import Aggregate, Box, closed_at, count, largest, mean, total
from tests.laws.significant import Emitted
from tests.laws.tape import PLAIN, Tape

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
    {"all": total("total"), "top": largest("biggest"), "trades": mean("n")},
    time=closed_at,
)


@dataclass(frozen=True)
class Shape:
    """A network, the oracle's boxes for it, and the arcs that must have the same revisions.

    Args:
        plan: The network, compiled.
        boxes: The oracle's boxes, in topological order.
        agree: Pairs of arcs with the same content, computed in different modes.
        keep: The `keep` of its sources, in ms.
        lateness: The `lateness` of its sources, in ms.
        tape: Makes the records of a source.
        glitch_free: Arcs whose tuples have ``low`` = ``top`` + 1 if both come from one content
            (L4).
    """

    plan: CompiledPlan
    boxes: tuple[Box, ...]
    agree: tuple[tuple[str, str], ...]
    keep: int = KEEP
    lateness: int = LATENESS
    tape: Callable[..., Tape] = Tape
    glitch_free: tuple[str, ...] = ()


def _source(net: Network, name: str, **more: Any) -> Stream:
    return net.source(
        name,
        topic=f"{name}.swaps",
        format="json",
        fields=PLAIN,
        identity=["key"],
        event_time="at",
        lateness=LATENESS,
        idle_after=IDLE_AFTER_MS,
        **{"partition_by": ["product"], "partitions": PARTITIONS, "keep": KEEP, **more},
    )


def front(*, kept: bool, **more: Any) -> tuple[Network, Stream]:
    net = Network("tape")
    trades = _source(net, SOURCE, **more)
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


def shape_of(
    net: Network, boxes: tuple[Box, ...], *agree: tuple[str, str], every_arc: bool = False
) -> Shape:
    plan = compile_network(net, every_arc=every_arc)
    plan = plan.placed(dict.fromkeys(plan.topology.sources, PARTITIONS))
    return Shape(plan, FRONT + boxes, agree)


def apart(*, kept: bool) -> Shape:
    """Upstream and downstream in separate processes."""
    return _in_pairs(*front(kept=kept))


def _in_pairs(net: Network, scaled: Stream, scopes: tuple[str, str] = ("a", "b")) -> Shape:
    _sums(scaled, "up", scope=scopes[0], mode="upstream")
    _sums(scaled, "down", scope=scopes[1], mode="downstream", keep=KEEP)
    boxes = tuple(replace(SUMS_ORACLE, name=name) for name in ("up", "down"))
    return shape_of(net, boxes, ("up", "down"))


def together(*, kept: bool) -> Shape:
    """Upstream and downstream in one scope, with one input."""
    return _in_pairs(*front(kept=kept), scopes=("both", "both"))


def further_down(*, kept: bool) -> Shape:
    """Downstream, with its results kept behind a map and a filter, in another scope."""
    net, scaled = front(kept=kept)
    _sums(scaled, "up", scope="a", mode="upstream")
    down = _sums(scaled, "down", scope="b", mode="downstream")
    named = down.map("named", fields={"double": "n * 2"}, scope="c" if kept else "b")
    named.where("shown", "product != 'fig'", keep=KEEP)
    boxes = (
        *(replace(SUMS_ORACLE, name=name) for name in ("up", "down")),
        oracle.Map("named", "down", {"double": lambda t: t["n"] * 2}),
        oracle.Where("shown", "named", lambda t: t["product"] != "fig"),
    )
    return shape_of(net, boxes, ("up", "down"), every_arc=True)


def chain(*, kept: bool) -> Shape:
    """An aggregate over another's results; if not `kept`, the replay goes through the first one."""
    net, scaled = front(kept=True)
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
    return shape_of(net, boxes, ("up", "down"))


def exchanged(*, kept: bool) -> Shape:
    """Groups that span partitions, brought together by exchanges."""
    net, scaled = front(kept=kept)
    for name, mode in (("up", "upstream"), ("down", "downstream")):
        scaled.aggregate(
            name,
            by=["desk"],
            window=hopping(12, every=8),
            mode=mode,
            partitions=3,
            keep=KEEP if mode == "downstream" else None,
            fields=SUMS,
        )
    boxes = tuple(replace(SUMS_ORACLE, name=name, by=("desk",)) for name in ("up", "down"))
    return shape_of(net, boxes, ("up", "down"))


def moved(*, kept: bool) -> Shape:
    """A map that changes the fields its arc is partitioned by, then a chain of aggregates."""
    net, scaled = front(kept=True)
    placed = scaled.map(
        "placed",
        fields={"product": "coalesce(desk, 'none')", "desk": "product"},
        partitions=3,
        keep=KEEP if kept else None,
    )
    _sums(placed, "up", scope="a", mode="upstream")
    down = _sums(placed, "down", scope="b", mode="downstream", keep=KEEP if kept else None)
    down.map("named", fields={"double": "n * 2"}, keep=KEEP)
    down.aggregate("all", by=["desk"], window=tumbling(16), fields={"n": "sum(n)"}, keep=KEEP)
    swap = {"product": lambda t: t["desk"] or "none", "desk": lambda t: t["product"]}
    boxes = (
        oracle.Map("placed", "scaled", swap),
        *(replace(SUMS_ORACLE, name=name, input="placed") for name in ("up", "down")),
        oracle.Map("named", "down", {"double": lambda t: t["n"] * 2}),
        Aggregate("all", "down", ("desk",), 16, 16, {"n": total("n")}, time=closed_at),
    )
    return shape_of(net, boxes, ("up", "down"), every_arc=True)


def routed(*, kept: bool) -> Shape:
    """A route whose outputs meet again; tuples that no output accepts are dropped."""
    net, scaled = front(kept=kept)
    big, small = scaled.route(big="amount >= 1", small="size is not null", keep=None)
    more = big.map("more", fields={"value": "value + 1"}, scope="more")
    both = net.union("both", more, small, keep=KEEP if kept else None)
    _sums(both, "up", scope="a", mode="upstream")
    _sums(both, "down", scope="b", mode="downstream", keep=KEEP)

    def is_big(t: oracle.Tuple) -> bool:
        return t["amount"] is not None and t["amount"] >= 1

    boxes = (
        oracle.Where("big", "scaled", is_big),
        oracle.Where("small", "scaled", lambda t: not is_big(t) and t["size"] is not None),
        oracle.Map("more", "big", {"value": lambda t: t["value"] + 1}),
        oracle.Union("both", ("more", "small")),
        *(replace(SUMS_ORACLE, name=name, input="both") for name in ("up", "down")),
    )
    return shape_of(net, boxes, ("up", "down"))


def united(*, kept: bool) -> Shape:
    """Two sources, each with its own watermarks and identities, in one union."""
    net, scaled = front(kept=kept)
    more = _source(net, "more").map("doubled", fields={"value": "amount * 2"})
    both = net.union("both", scaled, more, keep=KEEP if kept else None)
    _sums(both, "up", scope="a", mode="upstream")
    _sums(both, "down", scope="b", mode="downstream", keep=KEEP)
    double: Mapping[str, Callable[[oracle.Tuple], Any]] = {
        "value": lambda t: None if t["amount"] is None else t["amount"] * 2
    }
    boxes = (
        oracle.Map("doubled", "more", double),
        oracle.Union("both", ("scaled", "doubled"), tag="source"),
        *(replace(SUMS_ORACLE, name=name, input="both") for name in ("up", "down")),
    )
    return shape_of(net, boxes, ("up", "down"))


def rekeyed(*, kept: bool) -> Shape:
    """A source whose records of one identity come from any partition of its topic."""
    shape = _in_pairs(*front(kept=kept, partitions=4, rekey=True))
    return replace(shape, tape=partial(Tape, scattered=True))


def diamond(*, kept: bool) -> Shape:
    """(A + 1) / (A + 2), where A counts a window's tuples: two paths from one arc that meet again.

    In one scope; in separate processes; and behind exchanges.
    """
    net, scaled = front(kept=kept)
    boxes: list[Box] = []
    for arc, by, scopes in (
        ("together", ("product", "desk"), ("one", "one", "one")),
        ("across", ("product", "desk"), ("left", "right", "meet")),
        ("regrouped", ("desk",), ("lefts", "rights", "meets")),
    ):
        sides = {}
        for side, more, scope in zip(("n", "d"), (1, 2), scopes, strict=False):
            name = f"{arc}_{side}"
            sides[side] = scaled.aggregate(
                name,
                by=by,
                window=tumbling(12),
                emit="on_update",
                scope=scope,
                keep=KEEP,
                partitions=3 if by == ("desk",) else None,
                fields={side: f"count(*) + {more}"},
            )
            results = {side: partial(_plus, more)}
            boxes.append(Aggregate(name, "scaled", by, 12, 12, results, on_update=True))
        on = (*by, "window_start")
        ratio = {"top": "n.n", "low": "d.d", "ratio": "n.n / d.d"}
        net.join(arc, sides, on=on, scope=scopes[2], keep=KEEP, fields=ratio)
        boxes.append(
            oracle.Join(
                arc,
                (f"{arc}_n", f"{arc}_d"),
                on,
                is_left=False,
                identities=(on, on),
                times=("window_end", "window_end"),
                results={
                    "top": lambda n, _: n["n"],
                    "low": lambda _, d: d["d"],
                    "ratio": lambda n, d: n["n"] / d["d"],
                },
            )
        )
    shape = shape_of(net, tuple(boxes))
    return replace(shape, glitch_free=("together", "across", "regrouped"))


def _plus(more: int, tuples: list[oracle.Tuple]) -> int:
    return len(tuples) + more


NEAR = {"n": 2, "total": 9, "biggest": "60%"}
NEAR_ALL = {"all": "40%", "top": 6, "trades": 1.5}


def close_enough(*, kept: bool, on_spark: bool = False) -> Shape:
    """Aggregates that keep revisions back; if not `kept`, replays go through the first one."""
    net, scaled = front(kept=kept)

    def how(mode: str, scope: str | None = None) -> dict[str, Any]:
        if on_spark:
            return {"mode": "adaptive", "place": "spark"}
        return {"mode": mode, "scope": scope}

    boxes: list[Box] = []
    for name, mode, keep in (("near", "downstream", KEEP), ("first", "upstream", None)):
        first = scaled.aggregate(
            name,
            by=["product"],
            window=tumbling(12),
            keep=KEEP if kept else keep,
            significance=NEAR,
            fields=FIRST,
            **how(mode),
        )
        exact = replace(FIRST_ORACLE, name=f"{name}-exact", by=("product",), size=12, slide=12)
        boxes += [exact, Emitted(name, exact.name, NEAR, "window_end")]
    for name, mode, scope in (("up", "upstream", None), ("down", "downstream", "two")):
        first.aggregate(
            name,
            by=["product"],
            window=hopping(24, every=12),
            keep=KEEP,
            significance=NEAR_ALL,
            fields=SECOND,
            **how(mode, scope),
        )
        exact = replace(SECOND_ORACLE, name=f"{name}-exact")
        boxes += [exact, Emitted(name, exact.name, NEAR_ALL, "window_end")]
    shape = shape_of(net, tuple(boxes), ("up", "down"), every_arc=not on_spark)
    if on_spark:  # a job takes epochs together: it may keep back what another one emits
        return replace(shape, agree=())
    return replace(shape, agree=(("up", "down"), ("near", "first"), ("up-kept", "down-kept")))


SHAPES: tuple[Callable[..., Shape], ...] = (
    apart,
    together,
    chain,
    further_down,
    exchanged,
    moved,
    routed,
    united,
    rekeyed,
    diamond,
    close_enough,
)
