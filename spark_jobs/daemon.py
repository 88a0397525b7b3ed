"""Spark's daemon of Python workers, which imports what they need before it forks them.

A worker then starts in milliseconds instead of a second: a job has several for each core.
"""

from __future__ import annotations

from pyspark.daemon import manager

from errata.spark_jobs import stages

__all__ = ["stages"]

if __name__ == "__main__":
    manager()
