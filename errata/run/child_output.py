"""What a supervisor says, and what it passes on of what its processes say."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

from errata.settings import logs


def tell(line: str) -> None:
    """Write one line to standard error, in one piece."""
    if logs.is_json():
        logging.getLogger("errata.up").warning(line)
        return
    sys.stderr.write(f"errata: {line}\n")
    sys.stderr.flush()


def pass_on(process: str, line: str, say: Callable[[str], None]) -> str:
    """Pass on a line that a process wrote, with its name; return the message in it.

    Args:
        process: Its name.
        line: The line; one of JSON stays one, if that is what is logged here.
        say: Where other lines go.
    """
    told = logs.read_line(line) if logs.is_json() else None
    if told is None:
        say(f"{process}: {line}")
        return line
    sys.stderr.write(json.dumps({**told, "process": process}) + "\n")
    sys.stderr.flush()
    return str(told["message"])
