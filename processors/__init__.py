"""Networks of boxes: plan, windows, aggregates, expressions, ingest and the task loop."""
