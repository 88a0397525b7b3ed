"""What processes log: lines for people, or JSON for programs, on standard error.

A line of JSON has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``, then ``network``
and ``task`` where they are known, and ``exception`` where there is one.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from errata.topics.client import LOGGER as CLIENT
from errata.topics.secrets import Cleaning, clean

TEXT, JSON = FORMATS = "text", "json"
LEVELS = ("debug", "info", "warning", "error")
LEVEL = "warning"
"""The level when nobody says one."""

_FIELDS = {"asctime": "time", "levelname": "level", "name": "logger", "message": "message"}
"""Fields that every line has, by the library's names for them."""
_EXCEPTION = "exception"

about: dict[str, str] = {}
"""What this process is working on just now, by field."""


class JsonLines(JsonFormatter):
    """A line of JSON a record."""

    converter = staticmethod(time.gmtime)
    default_time_format, default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__([*_FIELDS], rename_fields={**_FIELDS, "exc_info": _EXCEPTION})

    def formatException(self, ei: Any) -> str:
        """Return a traceback without secrets: the library takes none that `Cleaning` has made."""
        return clean(super().formatException(ei))

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Add what the process works on; leave out what others attach, which nobody has cleaned."""
        told = {**log_data, **about}
        names = (*_FIELDS.values(), *about, _EXCEPTION)
        return {name: told[name] for name in names if name in told}


def set_up(form: str = TEXT, level: str = LEVEL) -> None:
    """Have everything logged to standard error, from now on.

    Lines of librdkafka are among it in JSON, and on a terminal from level info: what matters of
    them is told by an error.

    Args:
        form: `TEXT` or `JSON`.
        level: One of `LEVELS`.
    """
    handler = logging.StreamHandler()
    formatter = JsonLines() if form == JSON else logging.Formatter("errata: %(message)s")
    handler.setFormatter(formatter)
    handler.addFilter(Cleaning())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(form == JSON)
    CLIENT.propagate = form == JSON or level in ("debug", "info")


def is_json() -> bool:
    """Whether lines of JSON are logged."""
    return any(isinstance(h.formatter, JsonLines) for h in logging.getLogger().handlers)


def read_line(line: str) -> dict[str, Any] | None:
    """Return the content of a line of JSON that another process has logged; None if it is none."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "message" in told else None
