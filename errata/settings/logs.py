"""Logging on standard error: plain lines for people, or JSON for programs.

A line of JSON has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``; also ``network``
and ``task`` if they are known, and ``exception`` if there is one.
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
"""The level if none is set."""

_FIELDS = {"asctime": "time", "levelname": "level", "name": "logger", "message": "message"}
"""Fields that every line has, by the library's names for them."""
_EXCEPTION = "exception"

context: dict[str, str] = {}
"""What this process currently works on, by field."""


class JsonLines(JsonFormatter):
    """Formats a log record as a line of JSON."""

    converter = staticmethod(time.gmtime)
    default_time_format, default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__([*_FIELDS], rename_fields={**_FIELDS, "exc_info": _EXCEPTION})

    def formatException(self, ei: Any) -> str:
        """Return a traceback without secrets; the library ignores the one that `Cleaning` makes."""
        return clean(super().formatException(ei))

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Add what the process works on; drop fields that others attach, which may hold secrets."""
        fields = {**log_data, **context}
        names = (*_FIELDS.values(), *context, _EXCEPTION)
        return {name: fields[name] for name in names if name in fields}


def set_up(form: str = TEXT, level: str = LEVEL) -> None:
    """Send all logging to standard error, from now on.

    Lines of librdkafka are included in JSON always, and as text from level info on: an error
    already reports what matters of them.

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
    """Return whether lines of JSON are logged."""
    return any(isinstance(h.formatter, JsonLines) for h in logging.getLogger().handlers)


def read_line(line: str) -> dict[str, Any] | None:
    """Return the content of another process's line of JSON; None if the line is not one."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) and "message" in content else None
