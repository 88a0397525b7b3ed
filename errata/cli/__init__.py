"""The command line: each file has one command, or a few small ones."""

from errata.cli.entry import main

__all__ = ["main"]
