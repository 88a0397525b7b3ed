"""Ending a process in good order: on a signal, or when the process that started it is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Self

WATCH_PARENT = "ERRATA_WATCH_PARENT"
"""Variable that tells a process that its standard input is a pipe of its parent's: when the pipe
ends, the parent is gone, however it died."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it; after SIGTERM it is 0."""

GRACE_S = 5.0
"""How long a process without a parent may take to end in good order."""


class Stop:
    """Tells a loop when to end; a context manager that listens to SIGINT and SIGTERM.

    Before the loop starts (`running` is false), and on a second signal, the process ends at once.

    Example:
        >>> with Stop() as stop:
        ...     stop.running = True
        ...     signal.raise_signal(signal.SIGTERM)
        ...     stop(), stop.status
        (True, 0)
    """

    def __init__(self) -> None:
        self.requested = self.running = False
        self.status = 0
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether to end now."""
        return self.requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.status = INTERRUPTED if number == signal.SIGINT else 0
        if self.requested or not self.running:
            raise SystemExit(self.status)
        self.requested = True

    def __enter__(self) -> Self:
        """Start to listen."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        if os.environ.get(WATCH_PARENT):
            threading.Thread(target=_watch, name="watch-parent", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Listen no more."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _watch() -> None:
    # os.read, not sys.stdin: a thread that holds that one's lock is fatal when the process ends.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
