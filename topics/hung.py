"""A call that does not come back ends its process, and whoever runs that starts it anew."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer


@contextmanager
def ended_if_hung(call: str, limit_s: float) -> Iterator[None]:
    """End the process, status 75 (EX_TEMPFAIL), if what is within takes longer than this.

    For a call of a library that can't be given up in another way; it must release Python's lock.

    Args:
        call: What it is, as the log names it.
        limit_s: How long it may take.
    """
    timer = Timer(limit_s, _end, (call, limit_s))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(call: str, limit_s: float) -> None:
    logging.getLogger("errata").error(
        "%s does not come back within %g s; the process ends, and what is not committed is done "
        "again by the next one",
        call,
        limit_s,
    )
    os._exit(os.EX_TEMPFAIL)
