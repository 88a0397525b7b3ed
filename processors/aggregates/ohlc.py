"""Bars: the open, high, low and close of a price."""

from __future__ import annotations


def ohlc(price: str) -> dict[str, str]:
    """Return the four results of a bar by name, for ``fields=`` of an aggregate.

    Open and close depend on event time, or on the ``order_by`` of the box; nulls are ignored.

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
