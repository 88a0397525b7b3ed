"""Spark's daemon of Python workers, with all that they need imported before they are forked.

A worker starts in milliseconds instead of a second: a job has several for each core.
"""

from __future__ import annotations

from pyspark.daemon import manager

import spark_jobs.operator
import spark_jobs.source
import spark_jobs.writer

__all__ = ["spark_jobs"]

if __name__ == "__main__":
    manager()
