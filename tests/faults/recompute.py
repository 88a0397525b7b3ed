"""What every arc of a network must hold, in plain Python from the tape.

It shares no code with the boxes. Numbers are exact: ints and decimals.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.faults import networks
from tests.faults.feed import Tape, Tuple

Content = dict[tuple[Any, ...], Tuple]
"""The tuples of an arc by identity."""

FOREVER = 2**62
IDENTITY = {
    "fills": ("key",),
    "wanted": ("key",),
    "sums": ("product", "window_start"),
    "same": ("product", "window_start"),
    "turns": ("window_start",),
    "bars": ("product", "window_start"),
    "lagged": ("key",),
    "gaps": ("product", "window_start"),
    "ordered": ("id",),
    "rates": ("symbol",),
    "priced": ("symbol", "o_id"),
    "big": ("symbol", "o_id"),
    "clients": ("client", "window_start"),
    "every": ("window_start",),
    "desks": ("product", "window_start"),
    "again": ("product", "window_start"),
    "best": ("window_start",),
    "rounds": ("window_start",),
}


def by_identity(arc: str, tuples: Iterable[Tuple]) -> Content:
    """Return tuples of an arc by their identity."""
    return {tuple(each[name] for name in IDENTITY[arc]): each for each in tuples}


def watermark(tapes: Iterable[Tape]) -> int:
    """Return the watermark of a network that has read all of some tapes."""
    return min(at for tape in tapes for at in tape.newest_ms.values()) - networks.LATENESS_MS


def fills(tapes: list[Tape], *, closed_ms: int, spark: bool = False) -> dict[str, Content]:
    """Return what the arcs of `networks.fills` hold.

    Args:
        tapes: Its tapes.
        closed_ms: The watermark: windows that end by then have results.
        spark: Whether it has boxes on Spark.
    """
    (tape,) = tapes
    wanted = [each for each in tape.live.values() if each["n"] >= 0]

    def sums(inside: list[Tuple]) -> Tuple:
        return {
            "fills": len(inside),
            "total": sum(each["n"] for each in inside),
            "paid": sum(each["n"] * each["price"] for each in inside),
            "dearest": max(each["price"] for each in inside),
        }

    def turns(inside: list[Tuple]) -> Tuple:
        totals = [each["total"] for each in inside]
        return {"everything": sum(totals), "best": max(totals), "results": len(totals)}

    hop, size = networks.HOP_MS, networks.HOP_SIZE_MS
    per_product = list(_windows(wanted, "at", ("product",), size, hop, closed_ms, sums))
    turn = networks.TURN_MS
    per_turn = _windows(per_product, "window_end", (), turn, turn, closed_ms, turns, moved_ms=-1)
    contents = {
        "fills": list(tape.live.values()),
        "wanted": wanted,
        "sums": per_product,
        "same": per_product,
        "turns": per_turn,
    }
    if spark:

        def bars(inside: list[Tuple]) -> Tuple:
            values = sorted(each["n"] for each in inside)
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
            return {"total": sum(values), "middle": middle}

        every = list(tape.live.values())
        contents["bars"] = list(_windows(every, "at", ("product",), size, size, closed_ms, bars))
        lagged, last = list[Tuple](), dict[str, int]()
        for each in sorted(wanted, key=lambda each: (each["at"], each["key"])):
            lagged.append(each | {"was": last.get(each["product"])})
            last[each["product"]] = each["n"]
        contents["lagged"] = lagged
        both = {(each["product"], each["window_start"]): each for each in per_product}
        contents["gaps"] = [
            {
                "product": bar["product"],
                "window_start": bar["window_start"],
                "window_end": bar["window_end"],
                "gap": bar["total"] - both[bar["product"], bar["window_start"]]["total"],
            }
            for bar in contents["bars"]
            if (bar["product"], bar["window_start"]) in both
        ]
    return {arc: by_identity(arc, tuples) for arc, tuples in contents.items()}


def orders(tapes: list[Tape], *, closed_ms: int) -> dict[str, Content]:
    """Return what the arcs of `networks.orders` hold; see `fills`."""
    ordered, rates = tapes
    priced = [
        {
            "symbol": order["symbol"],
            "o_id": order["id"],
            "at": max(order["at"], rates.live[order["symbol"]]["at"]),
            "client": order["client"],
            "value": order["quantity"] * rates.live[order["symbol"]]["rate"],
        }
        for order in ordered.live.values()
        if order["symbol"] in rates.live
    ]
    big = [each for each in priced if each["value"] >= 40]

    def clients(inside: list[Tuple]) -> Tuple:
        return {"orders": len(inside), "worth": sum(each["value"] for each in inside)}

    def every(inside: list[Tuple]) -> Tuple:
        return {
            "worth": sum(each["worth"] for each in inside),
            "most": max(each["orders"] for each in inside),
        }

    size = networks.CLIENT_MS
    per_client = list(_windows(big, "at", ("client",), size, size, closed_ms, clients))
    contents = {
        "ordered": list(ordered.live.values()),
        "rates": list(rates.live.values()),
        "priced": priced,
        "big": big,
        "clients": per_client,
        "every": _windows(
            per_client, "window_end", (), 2 * size, size, closed_ms, every, moved_ms=-1
        ),
    }
    return {arc: by_identity(arc, tuples) for arc, tuples in contents.items()}


def desks(tapes: list[Tape], *, closed_ms: int) -> dict[str, Content]:
    """Return what the arcs of `networks.desks` hold; see `fills`."""
    above = fills(tapes, closed_ms=closed_ms)

    def sums(inside: list[Tuple]) -> Tuple:
        return {"fills": len(inside), "paid": sum(each["n"] * each["price"] for each in inside)}

    def best(inside: list[Tuple]) -> Tuple:
        return {"paid": max(each["paid"] for each in inside)}

    def rounds(inside: list[Tuple]) -> Tuple:
        return {name: sum(each[name] for each in inside) for name in ("everything", "results")}

    size, turn, dealt = networks.CLIENT_MS, 2 * networks.TURN_MS, above["wanted"].values()
    per_desk = list(_windows(dealt, "at", ("product",), size, size, closed_ms, sums))
    turns = above["turns"].values()
    contents = {
        "desks": per_desk,
        "again": per_desk,
        "best": _windows(per_desk, "window_start", (), 2 * size, 2 * size, closed_ms, best),
        "rounds": _windows(turns, "window_start", (), turn, turn, closed_ms, rounds),
    }
    return {arc: by_identity(arc, tuples) for arc, tuples in contents.items()}


def _windows(
    tuples: Iterable[Tuple],
    time: str,
    by: tuple[str, ...],
    size_ms: int,
    every_ms: int,
    closed_ms: int,
    results: Callable[[list[Tuple]], Tuple],
    *,
    moved_ms: int = 0,
) -> Iterator[Tuple]:
    """Yield the results of all windows of some tuples that have closed."""
    inside: Mapping[tuple[Any, ...], list[Tuple]] = defaultdict(list)
    for each in tuples:
        at_ms = each[time] + moved_ms
        start_ms = at_ms // every_ms * every_ms
        while start_ms + size_ms > at_ms:
            inside[*(each[name] for name in by), start_ms].append(each)
            start_ms -= every_ms
    for (*group, start_ms), members in inside.items():
        if start_ms + size_ms <= closed_ms:
            bounds = {"window_start": start_ms, "window_end": start_ms + size_ms}
            yield dict(zip(by, group, strict=True)) | bounds | results(members)
