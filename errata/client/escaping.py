"""Makes texts from elsewhere safe to print."""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""Return a text with what is not printable as escapes: control and format characters.

    Example:
        >>> escaped("a\x1b[31m\u202eb"), escaped("a\nb")
        ('a\\x1b[31m\\u202eb', 'a\nb')
    """
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
