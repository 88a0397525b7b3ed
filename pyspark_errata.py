"""Makes ``spark.read.format("errata")`` work without a registration.

Spark looks for modules whose name begins with ``pyspark_``, and registers the `DefaultSource` of
each. One that can't be imported would keep Spark from finding those of others.
"""

from contextlib import suppress

with suppress(ImportError):
    from errata.spark import ArcSource as DefaultSource

__all__ = ["DefaultSource"]
