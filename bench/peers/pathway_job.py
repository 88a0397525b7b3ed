"""The bench's windows in Pathway; run by a Python that has it, and nothing of Errata.

Arguments: bootstrap servers, input topic, output topic, size and slide of the windows in ms. The
input is JSON with the amount already computed and signed: a row of minus one for an original, and
one for a new version. Each row is put into its two windows by hand: that is faster than
``windowby``.
"""

import sys
import time

import pathway as pw


class Signed(pw.Schema):
    """A row of the input."""

    key: str
    at: int
    amount: float
    sign: int


def main() -> None:
    """Run until it is ended."""
    servers, source, sink = sys.argv[1:4]
    size, slide = int(sys.argv[4]), int(sys.argv[5])
    consumer = {"bootstrap.servers": servers, "group.id": sink, "auto.offset.reset": "earliest"}
    rows = pw.io.kafka.read(
        consumer, topic=source, schema=Signed, format="json", autocommit_duration_ms=100
    )
    most = -(-size // slide)
    parts = []
    for back in range(most):
        is_in = rows.at % slide + back * slide < size
        part = rows.filter(is_in) if (back + 1) * slide > size else rows
        start = (part.at // slide - back) * slide
        parts.append(part.select(part.key, part.amount, part.sign, start=start))
    placed = pw.Table.concat_reindex(*parts)
    totals = placed.groupby(placed.key, placed.start).reduce(
        placed.key,
        placed.start,
        traded=pw.reducers.sum(placed.amount),
        trades=pw.reducers.sum(placed.sign),
    )
    producer = {"bootstrap.servers": servers, "queue.buffering.max.messages": "2000000"}
    pw.io.kafka.write(totals, producer, topic_name=sink, format="json")
    print("BEGUN", time.time_ns() // 1_000_000, flush=True)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main()
