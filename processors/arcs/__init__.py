"""Arcs as topics: reading, writing, partitioning, tombstones."""
