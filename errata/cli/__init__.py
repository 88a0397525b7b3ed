"""The command line: each file has one command, or a few small ones."""

import os


def main() -> None:
    """Run the command line; Ctrl-C while it is still loading ends it without a word."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads for what nobody uses here
    try:
        from errata.cli import entry
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    entry.main()
