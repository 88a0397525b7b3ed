"""Bars: what a price was at first, at most, at least and at last."""

from __future__ import annotations


def ohlc(price: str) -> dict[str, str]:
    """Return the four results of a bar by name, for ``fields=`` of an aggregate.

    Open and close go by event time, or by the ``order_by`` of the box; nulls are left out.

    Args:
        price: A field or an expression.

    Example:
        >>> for name, text in ohlc("price").items():
        ...     print(f"{name}: {text}")
        open: first(price) ignore nulls
        high: max(price)
        low: min(price)
        close: last(price) ignore nulls
    """
    return {
        "open": f"first({price}) ignore nulls",
        "high": f"max({price})",
        "low": f"min({price})",
        "close": f"last({price}) ignore nulls",
    }
