"""The Spark session that jobs run in."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from errata.processors.aggregates.user_function import UserWritten
from errata.processors.declare.declarations import Iterate
from errata.processors.declare.network import Network
from errata.processors.expressions.opaque import Opaque
from errata.schemas.errors import ErrataError
from errata.topics.java import NoJavaError, find_java

OLDEST_JAVA, NEWEST_JAVA = 17, 21
"""Oldest and newest Java release that Spark runs on."""

_NEEDED = ("pyspark", "pandas", "pyarrow", "google.protobuf")
_REQUIRED = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
}
_DEFAULTS = {
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",  # a row is a block of many tuples
    "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.authenticate.socketTimeout": "300s",  # a machine under load starts workers late
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",  # threads of clients would hold what they free
    "spark.python.daemon.module": "errata.spark_jobs.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_FILES = {"spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles"}


class SparkMissingError(ErrataError):
    """Something that Spark needs is not installed."""


def open_session(
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    name: str = "errata",
    log: Path | None = None,
) -> Any:
    """Return a session for streaming jobs; under spark-submit, the existing one.

    Args:
        master: Where it runs, as ``local[4]`` or ``spark://host:7077``; that of spark-submit, or
            this machine, when not given.
        settings: Spark's settings; they override the defaults.
        name: Name of the application.
        log: File for the output of Java and Spark; None for the output of this process. Ignored
            under spark-submit.

    Raises:
        SparkMissingError: If PySpark, one of the packages that it needs, or a Java that it runs on
            is missing.
    """
    check_packages()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    spark_settings = {
        key: value if submitted or key not in _FILES else _absolute(value)
        for key, value in (settings or {}).items()
    }
    if not submitted:
        os.environ["JAVA_HOME"] = str(check_java().resolve().parent.parent)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    session = import_module("pyspark.sql").SparkSession
    submitted_settings = import_module("pyspark").SparkConf() if submitted else None
    builder = session.builder.appName(name)
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    if master is None and not submitted:
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    for key, value in _DEFAULTS.items():
        if submitted_settings is None or not submitted_settings.contains(key):
            builder = builder.config(key, value)
    for key, value in {**spark_settings, **_REQUIRED}.items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if submitted:
        return builder.getOrCreate()
    options = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    user_options = spark_settings.get("spark.driver.extraJavaOptions", "")
    builder = builder.config("spark.driver.extraJavaOptions", f"{options} {user_options}".strip())
    with _redirected_output(log):
        return builder.getOrCreate()


def _absolute(files: str) -> str:
    """Return a list of files as absolute paths, since Java may start in another folder."""
    return ",".join(
        str(Path(file).absolute()) if Path(file).exists() else file for file in files.split(",")
    )


@contextmanager
def _redirected_output(log: Path | None) -> Iterator[None]:
    """Redirect the output of processes that are started meanwhile to a file.

    If this process is killed, Java outlives it for a moment and would hold its pipes. The processes
    start in the file's folder: Spark makes a folder ``artifacts`` where it is started.
    """
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    with log.open("ab") as file:
        for number in saved:
            os.dup2(file.fileno(), number)
    try:
        with chdir(log.parent):
            yield
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)


def check_packages() -> None:
    """Check that all packages are installed that PySpark needs here.

    Raises:
        SparkMissingError: If something is missing.
    """
    for package in _NEEDED:
        try:
            import_module(package)
        except ImportError as error:
            raise SparkMissingError(
                f"a Spark job needs the package {package!r}, which is not installed here "
                f"({error}); run: pip install 'errata-streams[spark]'"
            ) from error


def pickle_by_value(network: Network) -> None:
    """Pickle a user's functions by value, since executors don't have the network's file.

    Modules imported from the folder of a function's module are pickled with it.
    """
    cloudpickle = import_module("pyspark.cloudpickle")
    modules = {_module(function) for function in _user_functions(network)}
    folders = {Path(module.__file__).parent for module in modules if module and module.__file__}
    folders = {folder for folder in folders if "site-packages" not in folder.parts}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).parent in folders:
            cloudpickle.register_pickle_by_value(module)


def _user_functions(network: Network) -> Iterator[object]:
    """Yield the functions of a network that are not text."""
    declarations = [*network.declarations.values()]
    declarations += [box for loop in declarations if isinstance(loop, Iterate) for box in loop.body]
    for declaration in declarations:
        for attribute in vars(declaration).values():
            for value in attribute.values() if isinstance(attribute, Mapping) else (attribute,):
                if isinstance(value, Opaque):
                    yield value.function
                elif isinstance(value, UserWritten):
                    yield type(value)


def _module(function: object) -> ModuleType | None:
    return sys.modules.get(getattr(function, "__module__", None) or "")


def check_java() -> Path:
    """Return a Java that Spark runs on.

    Raises:
        SparkMissingError: If there is none.
    """
    try:
        return find_java(newest=NEWEST_JAVA)
    except NoJavaError as error:
        version = importlib.metadata.version("pyspark")
        tried = ", ".join(
            f"{path} is {found or 'broken'}" for path, found in error.releases.items()
        )
        raise SparkMissingError(
            f"PySpark {version} runs on Java {OLDEST_JAVA} to {NEWEST_JAVA}; found: "
            f"{tried or 'none'}; install one, or set JAVA_HOME to it"
        ) from error


def collected(frame: Any, *, failed: Callable[[str], ErrataError]) -> list[Any]:
    """Return the rows of a small data frame.

    Args:
        frame: The data frame.
        failed: Returns the error to raise if Spark stops, from a line that says why.
    """
    faults = import_module("py4j.protocol").Py4JError, import_module("pyspark.errors")
    try:
        return list(frame.collect())
    except (faults[0], faults[1].PySparkException) as error:
        raise failed(error_line(error)) from error


def error_line(error: object) -> str:
    """Return one line that says what went wrong, from a Spark error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line and not line.startswith("at ")]
    return (named or lines or ["it stopped"])[-1 if named else 0]
