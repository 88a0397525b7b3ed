"""Reads arcs and topics, and sends revisions by hand."""
