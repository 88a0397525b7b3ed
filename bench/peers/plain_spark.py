"""The bench's windows in plain Structured Streaming, without Errata.

Arguments: query (signed, forgetful), bootstrap servers, input topic, output topic, folder of the
checkpoint, size, slide and lateness of the windows in ms, schema of the records, class path. Spark
has no revisions: a record becomes a row of minus one for its original, and one for its new version.
The forgetful query has a watermark, and so a bounded state; the other one keeps every window.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from errata.spark_jobs.session import open_session

AT_ONCE = 200_000


def read(session: Any, servers: object, topic: str, options: Mapping[str, str | int]) -> Any:
    """Return the records of a topic from its start, as a stream."""
    return (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )


def write(records: Any, servers: object, topic: str, folder: str) -> Any:
    """Start a query that writes records to a topic, until all input is processed.

    Args:
        records: With ``key`` and ``value``; the last one of a key counts.
        servers: Where the brokers are.
        topic: The topic.
        folder: Of the checkpoint.
    """
    return (
        records.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", folder)
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    """Run the query until all that the topic has is processed."""
    query, servers, source, sink, folder, size, slide, lateness, schema, jars = sys.argv[1:]
    session = open_session(
        master="local[*]",
        settings={
            "spark.jars": jars,
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "3g",
        },
    )
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    records = read(session, servers, source, {"maxOffsetsPerTrigger": AT_ONCE})
    revision = records.select(from_avro(f.expr("substring(value, 6)"), schema).alias("r"))
    sides = f.array(
        f.struct(f.lit(-1).alias("sign"), f.col("r.before").alias("trade")),
        f.struct(f.lit(1).alias("sign"), f.col("r.after").alias("trade")),
    )
    signed = (
        revision.select(f.inline(sides))
        .where("trade is not null")
        .select(
            "sign",
            "trade.product",
            "trade.currency",
            "trade.at",
            f.expr(
                "sign * cast(trade.notional as double)"
                " * coalesce(cast(trade.index_factor as double), 1)"
            ).alias("amount"),
        )
    )
    if query == "forgetful":
        signed = signed.withWatermark("at", f"{lateness} milliseconds")
    window = f.window("at", f"{size} milliseconds", f"{slide} milliseconds")
    totals = signed.groupBy("product", "currency", window).agg(
        f.sum("amount").alias("traded"), f.sum("sign").alias("trades")
    )
    start = f.unix_millis("window.start").cast("string")
    written = totals.select(
        f.concat_ws("|", "product", "currency", start).alias("key"),
        f.concat_ws(" ", f.col("traded").cast("string"), f.col("trades").cast("string")).alias(
            "value"
        ),
    )
    print("BEGUN", time.time_ns() // 1_000_000, flush=True)
    running = write(written, servers, sink, folder)
    running.awaitTermination()
    dropped = 0
    for progress in running.recentProgress:
        for operator in json.loads(progress.json)["stateOperators"]:
            dropped += operator["numRowsDroppedByWatermark"]
            print("STATE", operator["numRowsTotal"])
    print("DROPPED", dropped)
    session.stop()


if __name__ == "__main__":
    main()
