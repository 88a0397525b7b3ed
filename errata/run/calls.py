"""Calls that wait for the brokers, beside the loop of a process.

The tasks of a process take turns in one thread. While one waits for a transaction, the others work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")

MOST = 64
"""Most calls at once; further ones queue."""


class Calls:
    """Runs calls in threads of their own. A task has one at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST, thread_name_prefix="call")
        self._open = set[Future[Any]]()

    def run(self, call: Callable[[], T]) -> Generator[bool, None, T]:
        """Yield False until a call has returned; return its value, or raise its error.

        If the generator is closed before, that waits for the call: nothing else may use the client
        of the transaction meanwhile.
        """
        future = self._threads.submit(call)
        self._open.add(future)
        try:
            while not future.done():
                yield False
        finally:
            wait([future])
            self._open.discard(future)
        return future.result()

    def rest(self, seconds: float) -> bool:
        """Wait until one of the open calls returns, for some time at most.

        Returns:
            Whether there are open calls.
        """
        if self._open:
            wait(self._open, seconds, FIRST_COMPLETED)
        return bool(self._open)

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._threads.shutdown()
