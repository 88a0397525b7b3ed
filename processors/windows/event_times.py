"""Event times that windows can be found for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.schemas.errors import ErrataError

Times = npt.NDArray[np.int64]

EVENT_TIME_BOUND_MS = 2**53
"""Event times lie within plus or minus this: room for window arithmetic in 64 bits, and a double
or a JSON number holds every one of them."""


class EventTimeError(ErrataError):
    """An event time is null or outside the bound; ingest refuses such tuples."""


def checked(event_times: pl.Series) -> Times:
    """Return event times that windows can be found for.

    Raises:
        EventTimeError: If one is null or outside of `EVENT_TIME_BOUND_MS`.
    """
    if event_times.has_nulls():
        raise EventTimeError(
            f"windows need an event time for each tuple, but {event_times.null_count()} of "
            f"{len(event_times)} are null; refuse such tuples at ingest"
        )
    times: Times = event_times.to_numpy()
    bound = EVENT_TIME_BOUND_MS
    if len(times) and not -bound <= times.min() <= times.max() <= bound:
        raise EventTimeError(
            f"event times go from {times.min()} to {times.max()} ms, but windows need them "
            f"within +-{bound} ms; is their unit ms?"
        )
    return times
