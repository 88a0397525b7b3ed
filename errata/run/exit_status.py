"""How a command ends: with one message on standard error, and an exit status.

Exit status: 0 only on success; 1 an error that the message explains; 2 wrong usage; 70 an internal
error of Errata; 130 after Ctrl-C; 141 if the reader of the output stopped reading.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from errata.client.escaping import escaped
from errata.run.stopping import INTERRUPTED, TEMPORARY, WATCH_PARENT
from errata.schemas.errors import ErrataError
from errata.settings import logs
from errata.topics.secrets import clean

INTERNAL = 70
OUTPUT_CLOSED = 141
DEBUG = "ERRATA_DEBUG"


@contextmanager
def reported(name: str) -> Iterator[None]:
    """Turn an exception of a command into one message on standard error and an exit status."""
    try:
        yield
    except (SystemExit, GeneratorExit, typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED) from error
    except BrokenPipeError as error:
        _drop_output()
        raise SystemExit(OUTPUT_CLOSED) from error
    except (ErrataError, OSError) as error:
        _drop_output()
        text = _without_number(error) if isinstance(error, OSError) else str(error)
        complain(text, error if os.environ.get(DEBUG) else None)
        raise SystemExit(_status(error)) from error
    except BaseException as error:  # a panic of Polars is not an Exception
        if isinstance(error, SystemError) and isinstance(error.__cause__, SystemExit):
            raise error.__cause__ from None  # a signal came while a call in C was under way
        text = f"internal error in `{name}`: {type(error).__name__}: {' '.join(str(error).split())}"
        shown = logs.is_json() or os.environ.get(DEBUG)
        complain(text, error if shown else None)
        if not shown:
            complain(f"please report it; {DEBUG}=1 shows the traceback")
        raise SystemExit(INTERNAL) from error


def complain(text: str, error: BaseException | None = None) -> None:
    """Write a message to standard error, without secrets; terminal control characters are escaped.

    Args:
        text: The message.
        error: An error whose traceback is shown with it.
    """
    if logs.is_json():
        logging.getLogger("errata").error(text, exc_info=error)
        return
    if error is not None:
        sys.stderr.write(clean("".join(traceback.format_exception(error))))
    sys.stderr.write(f"errata: {escaped(clean(text))}\n")


def _without_number(error: OSError) -> str:
    where = f": {error.filename!r}" if error.filename else ""
    return f"{error.strerror}{where}" if error.strerror else str(error)


def _status(error: BaseException) -> int:
    is_fixed = isinstance(error, ErrataError) and error.restart_helps
    return TEMPORARY if is_fixed and os.environ.get(WATCH_PARENT) else 1


def _drop_output() -> None:
    """If the rest of the output can't be written, redirect the last flush to the null device."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
