"""Which settings are secret, and how they are kept out of all output."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Mapping
from typing import Any, Self

HIDDEN = "***"

_KEY = re.compile(
    r"password|passphrase|secret|jaas|user\.info|key\.pem$|oauthbearer\.config|token(?!\.endpoint)"
)
_IN_URL = re.compile(r"(//[^/\s:@]*:)[^/\s@]+@")
_SHORTEST = 4  # shorter ones would match in any text

_known: set[str] = set()


def is_secret(key: str) -> bool:
    """Whether the value of a setting, of librdkafka's or of the registry's client, is a secret.

    Example:
        >>> [key for key in ("sasl.username", "sasl.password", "ssl.key.pem", "ssl.ca.pem",
        ...  "basic.auth.user.info", "sasl.oauthbearer.config") if is_secret(key)]
        ['sasl.password', 'ssl.key.pem', 'basic.auth.user.info', 'sasl.oauthbearer.config']
    """
    return _KEY.search(key) is not None


def remember(settings: Mapping[str, Any]) -> None:
    """Register the secrets of some settings: from now on `clean` removes them from any text."""
    for key, value in settings.items():
        if is_secret(key):
            # a secret known as USER:PASSWORD may appear without its user
            parts = {str(value), str(value).partition(":")[2]}
            _known.update(part for part in parts if len(part) >= _SHORTEST)


def clean(text: object) -> str:
    """Return a text without the registered secrets and without passwords in URLs.

    Example:
        >>> clean("no answer from http://ann:hunter2@registry:8081/subjects")
        'no answer from http://ann:***@registry:8081/subjects'
    """
    cleaned = _IN_URL.sub(rf"\1{HIDDEN}@", str(text))
    for secret in sorted(_known, key=len, reverse=True):
        cleaned = cleaned.replace(secret, HIDDEN)
    return cleaned


class Hiding(dict[str, Any]):
    """Settings that are safe to print: a `repr` has ``***`` in place of secrets.

    Example:
        >>> Hiding({"sasl.username": "ann"}) | {"sasl.password": "hunter2"}
        {'sasl.username': 'ann', 'sasl.password': '***'}
    """

    def __repr__(self) -> str:
        """Return the settings with their secrets hidden."""
        shown = {k: HIDDEN if is_secret(k) else clean_value(v) for k, v in self.items()}
        return repr(shown)

    __str__ = __repr__

    def __or__(self, other: Mapping[str, Any]) -> Self:  # type: ignore[override]
        """Return these settings merged with others, which win."""
        return type(self)({**self, **other})

    def copy(self) -> Self:
        """Return the same settings."""
        return type(self)(self)


def clean_value(value: Any) -> Any:
    """Return a setting's value without the password of a URL."""
    return _IN_URL.sub(rf"\1{HIDDEN}@", value) if isinstance(value, str) else value


class Cleaning(logging.Filter):
    """A log filter that passes every record and removes secrets from its message and traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean a record."""
        record.msg, record.args = clean(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = clean("".join(traceback.format_exception(*record.exc_info))).rstrip()
        return True
