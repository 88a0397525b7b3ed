"""The proleptic Gregorian calendar on arrays of days since 1970-01-01, and UTC's clock.

Numpy's ``datetime64`` counts days and months in 64 bits, so no function here has a last year.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DAY_MS = 86_400_000
MAX_DAYS = 2**62
"""More days than a date can hold: represents a day that does not exist."""


def months(days: Any) -> Any:
    """Return the months since January 1970 of each day.

    Example:
        >>> months(np.array([-1, 31])).tolist()
        [-1, 1]
    """
    return np.asarray(days, np.int64).view("M8[D]").astype("M8[M]").astype(np.int64)


def first_day(month: Any) -> Any:
    """Return the first day of each month, counted as in `months`."""
    return np.asarray(month, np.int64).view("M8[M]").astype("M8[D]").astype(np.int64)


def year(days: Any) -> Any:
    """Return the year, 0 for 1 BC."""
    return months(days) // 12 + 1970


def month(days: Any) -> Any:
    """Return the month, 1 to 12."""
    return months(days) % 12 + 1


def quarter(days: Any) -> Any:
    """Return the quarter, 1 to 4."""
    return months(days) % 12 // 3 + 1


def day_of_month(days: Any) -> Any:
    """Return the day of the month, from 1."""
    return days - first_day(months(days)) + 1


def day_of_year(days: Any) -> Any:
    """Return the day of the year, from 1."""
    return days - first_day(year_start(days)) + 1


def year_start(days: Any) -> Any:
    """Return the January of each day's year, counted as in `months`."""
    return months(days) // 12 * 12


def weekday(days: Any) -> Any:
    """Return 0 for Monday to 6 for Sunday."""
    return (days + 3) % 7


def day_of_week(days: Any) -> Any:
    """Return 1 for Sunday to 7 for Saturday."""
    return (days + 4) % 7 + 1


def week_of_year(days: Any) -> Any:
    """Return the ISO week, 1 to 53: the one that holds the year's first Thursday is 1.

    Example:
        >>> friday = first_day(np.array([51 * 12]))  # 2021-01-01
        >>> week_of_year(friday).tolist()
        [53]
    """
    return (day_of_year(days - weekday(days) + 3) - 1) // 7 + 1


def last_day(days: Any) -> Any:
    """Return the last day of each day's month."""
    return first_day(months(days) + 1) - 1


def add_months(days: Any, count: Any) -> Any:
    """Return the same day some months later, or the last day of a month that is too short."""
    month = months(days) + count
    return np.minimum(first_day(month) + day_of_month(days), first_day(month + 1)) - 1


def make_day(year: Any, month: Any, day: Any) -> Any:
    """Return the day of a date, `MAX_DAYS` if the date does not exist."""
    start = (np.asarray(year, np.int64) - 1970) * 12 + month - 1
    first = first_day(start)
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (day <= first_day(start + 1) - first)
    return np.where(exists, first + day - 1, MAX_DAYS)


def start_of(unit: str, days: Any) -> Any:
    """Return the first day of the ``week``, ``month``, ``quarter`` or ``year`` of each day."""
    if unit == "week":
        return days - weekday(days)
    width = {"month": 1, "quarter": 3, "year": 12}[unit]
    return first_day(months(days) // width * width)
