"""Parse HOST:PORT addresses; pydantic has only URLs, which need a scheme."""

from __future__ import annotations

from errata.schemas.errors import ErrataError


class AddressError(ErrataError):
    """An address to listen on is malformed."""


def address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an empty host means all interfaces.

    Raises:
        AddressError: If it is malformed.

    Example:
        >>> address("127.0.0.1:9100"), address("[::1]:9100"), address(":0")
        (('127.0.0.1', 9100), ('::1', 9100), ('', 0))
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not 0 <= number < 65536 or (":" in host and not bracketed):
        raise AddressError(
            f"http.listen needs HOST:PORT, found {text!r}; write it as 0.0.0.0:9464 or [::]:9464"
        )
    return host.strip("[]") if bracketed else host, number
