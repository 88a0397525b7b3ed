"""Kafka's jars, fetched once by the Ivy that PySpark ships and kept in the user's cache folder."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from zipfile import is_zipfile

from rich.console import Console
from rich.progress import Progress

from schemas.errors import ErrataError
from topics.trust import java_options

KAFKA = "4.3.1"
"""The version of Kafka that the embedded broker runs."""

_MODULES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),  # else the broker logs nothing
)
_ABOUT = 46  # jars; only the bar's length depends on it
_LIMIT_S = 900
_UNTRUSTED = "PKIX path building failed"


class JarsError(ErrataError):
    """Kafka's jars are not in the cache and can't be fetched."""

    def __init__(self, reason: str, *, remedy: str) -> None:
        super().__init__(f"the jars of Kafka {KAFKA} can't be had: {reason}; {remedy}")


def cache_folder() -> Path:
    """Return the folder that keeps them: ERRATA_CACHE, else `errata` in the user's cache folder."""
    if own := os.environ.get("ERRATA_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "errata")


def kafka_jars(java: Path, *, cache: Path | None = None) -> list[Path]:
    """Return the jars of Kafka's class path, fetching those that are missing or cut short.

    With a full cache nothing is run and no network is needed. Processes that come at once wait for
    the first one. A bar is shown while fetching if stderr is a terminal.

    Args:
        java: A `java` that can run Ivy.
        cache: Where to keep them; `cache_folder()` by default.

    Raises:
        JarsError: If something is missing and can't be fetched.
    """
    folder = (cache or cache_folder()) / f"kafka-{KAFKA}"
    class_path = folder / "class-path"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        damaged = _damaged(class_path)
        for _attempt in range(2):
            if damaged == []:
                break
            for jar in damaged or []:
                jar.unlink(missing_ok=True)
            _fetch(java, folder, class_path)
            damaged = _damaged(class_path)
        if damaged != []:
            raise JarsError(
                f"{len(damaged or [])} of them arrive damaged", remedy=f"delete {folder}, try again"
            )
        return _jars(class_path)


def _jars(class_path: Path) -> list[Path]:
    """Read the list; it is relative to its folder, so that a cache can be moved or copied."""
    return [class_path.parent / line for line in class_path.read_text().splitlines()]


def _damaged(class_path: Path) -> list[Path] | None:
    """Return the jars that are missing or cut short; None if not even the list is there."""
    if not class_path.exists():
        return None
    return [jar for jar in _jars(class_path) if not is_zipfile(jar)] if _jars(class_path) else None


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ivy() -> Path:
    spark = importlib.util.find_spec("pyspark")
    for place in (spark and spark.submodule_search_locations) or []:
        for jar in Path(place, "jars").glob("ivy-*.jar"):
            return jar
    raise JarsError("PySpark, which ships Ivy, is missing", remedy="pip install 'errata[broker]'")


def _fetch(java: Path, folder: Path, class_path: Path, *, trust: Sequence[str] = ()) -> None:
    """Run Ivy; what an earlier run has fetched is kept."""
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="default"/>'
        for org, name, version in _MODULES
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="errata" module="broker"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    listed = folder / "class-path.new"
    # Ivy's home is our own: a half-filled one of other programs makes it fail.
    command: list[str | Path] = [java, *trust, f"-Divy.default.ivy.user.dir={folder}"]
    command += ["-jar", _ivy()]
    command += ["-ivy", module, "-confs", "default"]
    command += ["-cache", folder / "jars", "-cachepath", listed]
    lines: list[str] = []
    with (
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as ivy,
        Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar,
    ):
        limit = Timer(_LIMIT_S, ivy.kill)
        limit.start()
        jars = bar.add_task(f"Kafka {KAFKA}, first use", total=2 * _ABOUT)
        assert ivy.stdout is not None
        for line in ivy.stdout:
            lines.append(line.strip())
            # Each jar is found, then fetched.
            bar.advance(jars, line.startswith(("\tfound ", "\t[SUCCESSFUL ")))
        limit.cancel()
    if not trust and any(_UNTRUSTED in line for line in lines):
        options = java_options(folder)
        if options:  # this Java does not know an authority that the machine does
            _fetch(java, folder, class_path, trust=options)
            return
    if ivy.returncode or not listed.exists():
        reason = next((line for line in lines if "UNRESOLVED" in line or "FAILED" in line), "")
        raise JarsError(
            reason or (lines[-1] if lines else f"Ivy ended with status {ivy.returncode}"),
            remedy="a network is needed for the first use, "
            f"or copy {folder} from a machine that has had it",
        )
    jars_found = sorted(set(listed.read_text().strip().split(os.pathsep)) - {""})
    listed.write_text("\n".join(os.path.relpath(jar, folder) for jar in jars_found))
    listed.replace(class_path)
