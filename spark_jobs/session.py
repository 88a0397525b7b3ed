"""The Spark session that jobs run in."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from schemas.errors import ErrataError
from topics.java import NoJavaError, find_java

OLDEST_JAVA, NEWEST_JAVA = 17, 21
"""Releases of Java that Spark 4.0 runs on."""

_NEEDED = ("pyspark", "pandas", "pyarrow", "google.protobuf")
_LAWS = {
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
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


class SparkMissingError(ErrataError):
    """Something that Spark needs is not here."""


def open_session(
    *, master: str | None = None, settings: Mapping[str, str] | None = None, name: str = "errata"
) -> Any:
    """Return a session with what streaming jobs need; the one that there is, under spark-submit.

    Args:
        master: Where it runs, as ``local[4]`` or ``spark://host:7077``; that of spark-submit, or
            this machine, when not given.
        settings: Spark's settings; they go before the defaults.
        name: Name of the application.

    Raises:
        SparkMissingError: If PySpark, one of the packages that it needs, or a Java that it runs on
            is missing.
    """
    for package in _NEEDED:
        try:
            import_module(package)
        except ImportError as error:
            raise SparkMissingError(
                f"a Spark job needs the package {package!r}, which is not installed here "
                f"({error}); run: pip install 'errata[spark]'"
            ) from error
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        _choose_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    session = import_module("pyspark.sql").SparkSession
    builder = session.builder.appName(name)
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    if master is None and not submitted:
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    for key, value in {**_DEFAULTS, **(settings or {}), **_LAWS}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _choose_java() -> None:
    """Set JAVA_HOME to a Java that Spark runs on."""
    version = importlib.metadata.version("pyspark")
    need = f"PySpark {version} runs on Java {OLDEST_JAVA} to {NEWEST_JAVA}"
    try:
        java = find_java(newest=NEWEST_JAVA)
    except NoJavaError as error:
        raise SparkMissingError(f"{need}: {error}") from error
    os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
