"""What processes log: lines for people, or JSON for programs, on standard error.

A line of JSON has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``, then ``network``
and ``task`` where they are known, and ``exception`` where there is one.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from errata.topics.client import LOGGER as CLIENT
from errata.topics.secrets import Cleaning

TEXT, JSON = FORMATS = "text", "json"
LEVELS = ("debug", "info", "warning", "error")

about: dict[str, str] = {}
"""What this process is working on just now, by field."""


class JsonLines(logging.Formatter):
    """A line of JSON a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **about,
        }
        if record.exc_info:
            told["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(told)


def set_up(form: str = TEXT, level: str = "warning") -> None:
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
