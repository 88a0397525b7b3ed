"""The root of all errors that Errata raises on purpose."""


class ErrataError(Exception):
    """An error that a user or operator can act on.

    The message says which part failed, what was needed, what was found and what to do. A command
    prints it on one line and exits with a non-zero status.
    """

    restart_helps = False
    """Whether the process that starts again after it may well go on."""
