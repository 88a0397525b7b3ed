"""SQL scalar expressions in Spark's dialect, evaluated on columns."""
