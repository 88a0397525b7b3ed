"""A network of functions whose states are whole contents, in each mode that is legal for them."""

from dataclasses import replace
from fractions import Fraction

from errata import hopping, ohlc, sliding
from tests.laws import windows
from tests.laws.networks import KEEP, Shape, front, shape_of
from tests.laws.oracle import Aggregate, largest
from tests.laws.results import (
    Order,
    covariance,
    distinct,
    first,
    mode,
    most_common,
    percentile,
    smallest,
    top_k,
    volatility,
)

BY_TIME: Order = (("at", False), ("key", False))
WHOLE = {
    "p99": "percentile(value, 0.99)",
    "middle": "median(size)",
    "sizes": "count(distinct size)",
    "usual": "mode(value)",
    "top": "top_k(size, 2)",
    "common": "most_common(size, 2)",
    "volatility": "realised_volatility(abs(value) + 1)",
    "together": "corr(value, size)",
    **ohlc("value"),
}
WHOLE_ORACLE = Aggregate(
    "",
    "scaled",
    ("product",),
    12,
    8,
    {
        "p99": percentile("value", Fraction(99, 100)),
        "middle": percentile("size", Fraction(1, 2)),
        "sizes": distinct("size"),
        "usual": mode("value"),
        "top": top_k("size", 2, str),
        "common": most_common("size", 2, str),
        "volatility": volatility(
            lambda t: None if t["value"] is None else abs(t["value"]) + 1, BY_TIME
        ),
        "together": covariance("corr", "value", "size", of_doubles=False),
        "open": first("value", BY_TIME, ignore_nulls=True),
        "high": largest("value"),
        "low": smallest("value"),
        "close": first("value", BY_TIME, at=-1, ignore_nulls=True),
    },
)


SLIDING = ("p99", "sizes", "usual", "volatility")


def whole_contents(*, kept: bool) -> Shape:
    """Whole contents of hopping windows, and merged ones of sliding windows; never downstream."""
    net, scaled = front(kept=kept)
    for name, how in (("up", "adaptive"), ("live", "resident")):
        window = hopping(12, every=8)
        scaled.aggregate(name, by=["product"], window=window, mode=how, keep=KEEP, fields=WHOLE)
    some = {name: WHOLE[name] for name in SLIDING}
    scaled.aggregate("slid", by=["product"], window=sliding(7), mode="upstream", fields=some)
    boxes = (
        *(replace(WHOLE_ORACLE, name=name) for name in ("up", "live")),
        replace(
            WHOLE_ORACLE,
            name="slid",
            windows=windows.sliding(7),
            results={name: WHOLE_ORACLE.results[name] for name in SLIDING},
        ),
    )
    return shape_of(net, boxes, ("up", "live"), every_arc=True)
