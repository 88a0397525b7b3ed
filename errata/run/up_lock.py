"""Lets one `errata up` at a time run a network with a state folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from errata.schemas.errors import ErrataError

_FILE = "up.lock"


class AlreadyUpError(ErrataError):
    """Another `errata up` runs the network with the same state folder."""


@contextmanager
def only_up(state: Path, network: str) -> Iterator[None]:
    """Hold the lock of a network in a state folder.

    Raises:
        AlreadyUpError: If another process holds it.
    """
    folder = state / network
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            process = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise AlreadyUpError(
                f"network {network!r} is run by another `errata up` already, process {process}, "
                f"with the state folder {state}: end that one first; to share the work of the "
                "network between machines, see `errata run --shared`"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
