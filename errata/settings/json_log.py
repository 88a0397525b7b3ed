"""Lines of JSON for what is logged."""

from __future__ import annotations

import time
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from errata.settings.logs import context
from errata.topics.secrets import clean

_FIELDS = {"asctime": "time", "levelname": "level", "name": "logger", "message": "message"}
"""Fields that every line has, by the library's names for them."""
_EXCEPTION = "exception"


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
