"""Boxes: pure functions on collections with an incremental form."""
