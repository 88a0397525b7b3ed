"""The root of all errors that Errata raises on purpose."""


class ErrataError(Exception):
    """Something a user or operator can act on.

    The text says who found it, what was needed, what was found and what to do. A command prints it
    on one line and exits with a status that is not 0.
    """
