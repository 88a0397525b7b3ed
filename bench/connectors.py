"""Spark's own connectors to Kafka and Avro: for plain Spark, beside which Errata is measured.

Errata has no use for them: its executors read and write Kafka through its own client.
"""

from errata.topics.java import Jars

RELEASE = "4.2.0"
"""The newest release of which registries have every part; later ones of Spark run it."""
_MODULES = ("spark-sql-kafka-0-10_2.13", "spark-avro_2.13")

CONNECTORS = Jars(
    f"spark-{RELEASE}-connectors",
    tuple(("org.apache.spark", name, RELEASE) for name in _MODULES),
    20,
)
