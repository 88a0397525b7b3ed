"""Forwards the output of child processes, prefixed with their names."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

from errata.settings import logs


def tell(line: str) -> None:
    """Write one line to standard error with a single write."""
    if logs.is_json():
        logging.getLogger("errata.up").warning(line)
        return
    sys.stderr.write(f"errata: {line}\n")
    sys.stderr.flush()


def pass_on(process: str, line: str, say: Callable[[str], None]) -> str:
    """Forward a line of a process with its name; return the message in it.

    Args:
        process: The name of the process.
        line: The line; a line of JSON stays JSON if this process logs JSON.
        say: Writes other lines.
    """
    told = logs.read_line(line) if logs.is_json() else None
    if told is None:
        say(f"{process}: {line}")
        return line
    sys.stderr.write(json.dumps({**told, "process": process}) + "\n")
    sys.stderr.flush()
    return str(told["message"])
