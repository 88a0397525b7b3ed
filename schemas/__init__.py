"""Avro types of the arcs and the columnar codec (pure: no I/O)."""
