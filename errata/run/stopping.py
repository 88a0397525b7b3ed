"""Ends a process in good order: on a signal, or when its parent process is gone."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Self

WATCH_PARENT = "ERRATA_WATCH_PARENT"
"""Variable that says that standard input is a pipe of the parent process.

When the pipe ends, the parent is gone, however it died.
"""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells; after SIGTERM it is 0."""

GRACE_S = 5.0
"""How long a process may take to end in good order after its parent is gone."""

LIMIT_S = 9.0
"""The longest a process lives after its first signal; Docker kills it after 10 s."""

TEMPORARY = 75
"""Exit status of a supervised process after an error that a restart may fix (EX_TEMPFAIL)."""
OVERDUE = TEMPORARY
"""Exit status of a process that could not end in good order within that time."""


class Stop:
    """Says when a loop should end; a context manager that handles SIGINT and SIGTERM.

    A signal before the loop starts (`running` is false), and a second signal, end the process at
    once. It always ends within `LIMIT_S` of a signal, even in a call that does not return: the next
    attempt aborts a commit that hangs, as after a kill.

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
        self._handlers_before: dict[int, Any] = {}
        self._ended = threading.Event()

    def __call__(self) -> bool:
        """Return whether to end now."""
        return self.requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.status = INTERRUPTED if number == signal.SIGINT else 0
        if self.requested or not self.running:
            raise SystemExit(self.status)
        self.requested = True

    def __enter__(self) -> Self:
        """Install the signal handlers."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers_before[number] = signal.signal(number, self._on_signal)
        # Python's handlers run between two steps of the main thread; this pipe is written at once.
        read_end, self._wakeup_fd = os.pipe()
        os.set_blocking(self._wakeup_fd, False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup_fd, warn_on_full_buffer=False)
        watch = threading.Thread(target=self._limit, args=(read_end,), name="overdue", daemon=True)
        watch.start()
        if os.environ.get(WATCH_PARENT):
            threading.Thread(target=_watch, name="watch-parent", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the signal handlers."""
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._ended.set()
        os.close(self._wakeup_fd)

    def _limit(self, read_end: int) -> None:
        """End the process when it takes too long after a signal."""
        with open(read_end, "rb", buffering=0) as signals:
            while numbers := signals.read(64):
                if {signal.SIGINT, signal.SIGTERM}.isdisjoint(numbers):
                    continue
                if not self._ended.wait(LIMIT_S):
                    logging.getLogger("errata").error(
                        "did not end within %g s of a signal: a call does not return; the process "
                        "ends now, and the next attempt repeats what is not committed",
                        LIMIT_S,
                    )
                    os._exit(OVERDUE)
                return


def _watch() -> None:
    # os.read, not sys.stdin: a thread that holds the lock of sys.stdin is fatal at exit.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
