"""Structured Streaming and batch jobs: the same boxes, where state outgrows one machine."""
