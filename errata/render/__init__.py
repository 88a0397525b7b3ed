"""Renders a network's processes and topics as files for Kubernetes, Strimzi and compose."""
