"""Structured Streaming and batch jobs: the same boxes, for state that outgrows one machine."""
