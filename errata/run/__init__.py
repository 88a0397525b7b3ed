"""Runs the processes of a network."""
