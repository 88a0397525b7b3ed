"""Logging on standard error: plain lines for people, or JSON for programs.

A line of JSON has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``; also ``network``
and ``task`` if they are known, and ``exception`` if there is one.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from errata.topics.cluster import LOGGER as CLIENT
from errata.topics.secrets import Cleaning

TEXT, JSON = FORMATS = "text", "json"
LEVELS = ("debug", "info", "warning", "error")
LEVEL = "warning"
"""The level if none is set."""

context: dict[str, str] = {}
"""What this process currently works on, by field."""


def set_up(form: str = TEXT, level: str = LEVEL) -> None:
    """Send all logging to standard error, from now on.

    Lines of librdkafka are included in JSON always, and as text from level info on: an error
    already reports what matters of them.

    Args:
        form: `TEXT` or `JSON`.
        level: One of `LEVELS`.
    """
    handler = logging.StreamHandler()
    handler.name = form
    handler.setFormatter(_formatter(form))
    handler.addFilter(Cleaning())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(form == JSON)
    CLIENT.propagate = form == JSON or level in ("debug", "info")


def is_json() -> bool:
    """Return whether lines of JSON are logged."""
    return any(handler.name == JSON for handler in logging.getLogger().handlers)


def _formatter(form: str) -> logging.Formatter:
    if form == TEXT:
        return logging.Formatter("errata: %(message)s")
    from errata.settings.json_log import JsonLines  # its library takes time to import

    return JsonLines()


def read_line(line: str) -> dict[str, Any] | None:
    """Return the content of another process's line of JSON; None if the line is not one."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) and "message" in content else None
