"""Settings from files: ``ERRATA_KAFKA__SASL_PASSWORD_FILE`` names the file that holds a password.

So Docker and Kubernetes give secrets to a process: a variable is seen by whoever may look at the
container, a mounted file is not. pydantic-settings has folders of secrets only, a file a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from errata.schemas.errors import ErrataError

_SUFFIX, _TABLE = "_FILE", "__"
_LIBRDKAFKAS = ("_ASSERTION_FILE", "_PRIVATE_KEY_FILE", "_JWT_TEMPLATE_FILE")
"""Ends of variables for keys of librdkafka's own that name a file."""
_LARGEST = 1 << 20


class SecretFileError(ErrataError):
    """A variable names a file that gives no value, or that is not the only one to give it."""


def from_files(environ: Mapping[str, str], *, prefix: str) -> dict[str, str]:
    """Return variables, with the content of a file in place of each that names one.

    The line break at the end of a file does not count.

    Args:
        environ: Variables by name; empty ones don't count.
        prefix: What names of the settings' variables begin with.

    Raises:
        SecretFileError: If a file can't be read, is empty or no text, or the variable without
            ``_FILE`` is given too.
    """
    found = dict(environ)
    for name, path in environ.items():
        plain = name.removesuffix(_SUFFIX)
        if plain == name or not name.startswith(prefix) or _TABLE not in name or not path:
            continue
        if name.endswith(_LIBRDKAFKAS):
            continue
        if environ.get(plain):
            raise SecretFileError(f"variables {plain} and {name} are both set; leave one out")
        found[plain] = _content(name, path)
        del found[name]
    return found


def _content(name: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise SecretFileError(
            f"variable {name} names the file {path!r}, which can't be read: {error.strerror}; "
            "mount it, or let this user read it"
        ) from error
    except UnicodeDecodeError:
        raise SecretFileError(
            f"variable {name} names the file {path!r}, which is no UTF-8 text"
        ) from None  # the cause quotes a byte of it
    if not text or len(content) > _LARGEST:
        what = "larger than a megabyte" if text else "empty"
        raise SecretFileError(f"variable {name} names the file {path!r}, which is {what}")
    return text
