"""The command line: one command, or a few small ones, a file."""

from errata.cli.entry import main

__all__ = ["main"]
