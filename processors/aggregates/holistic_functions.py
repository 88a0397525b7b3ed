"""The table's functions of a whole content, and those of two arguments."""

from __future__ import annotations

from errata.processors.aggregates.calls import (
    covariance_of,
    distinct_of,
    median_of,
    mode_of,
    percentile_of,
    ranking_of,
    volatility_of,
)
from errata.processors.aggregates.function import BY_ORDER, Function
from errata.processors.aggregates.ranking import MostCommon, TopK

_EXACT = "exact"
_NEAREST = "rounded once"
_PRODUCTS = (
    "rounded once for int, long, decimal; else to 2^-130 of the product of the root mean squares"
)
_ALWAYS = "always"
_WHOLE = "always, in the size of what is there; never from a stored result"

HOLISTIC: tuple[Function, ...] = (
    Function(
        "percentile",
        "percentile(number, p) -> double, p from 0 to 1, on the line between the closest ranks",
        "percentile(price, 0.9)",
        _NEAREST,
        _WHOLE,
        percentile_of,
        parameters=1,
    ),
    Function(
        "median",
        "median(number) -> double, percentile(number, 0.5)",
        "median(size)",
        _NEAREST,
        _WHOLE,
        median_of,
    ),
    Function(
        "count distinct",
        "count(distinct any, ...) -> long, different rows of values, those with a null left out",
        "count(distinct venue)",
        _EXACT,
        _WHOLE,
        distinct_of,
        arguments=None,
    ),
    Function(
        "mode",
        "mode(any) -> its type, the most frequent; the smallest of those that are as frequent",
        "mode(venue)",
        _EXACT,
        _WHOLE,
        mode_of,
    ),
    Function(
        "top_k",
        "top_k(any but bytes, k) -> string, a JSON array of the k largest, the largest first; "
        "k from 1 to 1000",
        "top_k(price, 2)",
        _EXACT,
        _WHOLE,
        ranking_of(TopK),
        parameters=1,
    ),
    Function(
        "most_common",
        "most_common(any but bytes, k) -> string, a JSON array of the k most frequent with their "
        "counts, the most frequent first, then the smaller one",
        "most_common(venue, 1)",
        _EXACT,
        _WHOLE,
        ranking_of(MostCommon),
        parameters=1,
    ),
    Function(
        "corr",
        "corr(number, number) -> double; null for less than two rows, and where all values of one "
        "are the same",
        "corr(price, size)",
        _PRODUCTS,
        _ALWAYS,
        covariance_of,
        arguments=2,
    ),
    Function(
        "covar_samp",
        "covar_samp(number, number) -> double; null for less than two rows",
        "covar_samp(price, size)",
        _PRODUCTS,
        _ALWAYS,
        covariance_of,
        arguments=2,
    ),
    Function(
        "covar_pop",
        "covar_pop(number, number) -> double",
        "covar_pop(price, size)",
        _PRODUCTS,
        _ALWAYS,
        covariance_of,
        arguments=2,
    ),
    Function(
        "realised_volatility",
        "realised_volatility(number) -> double, the root of the sum of the squared logarithmic "
        "returns from tuple to tuple; null for none, and where a price is 0 or below",
        "realised_volatility(price)",
        "in doubles; the squares are summed exactly",
        _WHOLE,
        volatility_of,
        ordered=BY_ORDER,
    ),
)
"""Functions in the order of the page."""
