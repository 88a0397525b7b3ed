"""Where settings come from: the nearest `errata.toml`, variables, and files that variables name.

``ERRATA_KAFKA__SASL_PASSWORD_FILE`` names a file that holds a password. Docker and Kubernetes pass
secrets in this way: everybody who may inspect the container sees a variable, but not a mounted
file. pydantic-settings supports only folders of secrets, one file per setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from errata.schemas.errors import ErrataError

FILE, PREFIX, DELIMITER = "errata.toml", "ERRATA_", "__"
_SUFFIX = "_FILE"
_LIBRDKAFKAS = ("_ASSERTION_FILE", "_PRIVATE_KEY_FILE", "_JWT_TEMPLATE_FILE")
"""Suffixes of variables for keys of librdkafka that themselves name a file."""
_LARGEST = 1 << 20


class SettingsError(ErrataError):
    """A setting is missing, unknown or malformed."""


class SecretFileError(ErrataError):
    """A variable names a file that has no usable value, or the value is also set elsewhere."""


@dataclass(frozen=True)
class Setting:
    """One setting of `errata.toml`, as the documentation lists it.

    Args:
        table: Its table in the file.
        key: Its key in the table; "" for any.
        plain: A plain variable that also sets it.
        default: Its default, as the documentation shows it.
        about: What it does.
    """

    table: str
    key: str
    plain: str = ""
    default: str = ""
    about: str = ""

    @property
    def variable(self) -> str:
        """The ``ERRATA_`` variable that sets it."""
        key = self.key.replace(".", "_").upper() or "<KEY>"
        return f"{PREFIX}{self.table.upper()}{DELIMITER}{key}"


def nearest_file(folder: Path) -> Path | None:
    """Return the nearest `errata.toml`, from a folder upwards; None if there is none."""
    return next((f / FILE for f in (folder, *folder.parents) if (f / FILE).is_file()), None)


def errata_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the form ``ERRATA_<TABLE>__<KEY>`` that are not empty."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX) and DELIMITER in name and value
    }


def from_files(environ: Mapping[str, str], *, prefix: str) -> dict[str, str]:
    """Return variables, in which those that name a file are replaced by its content.

    The line break at the end of a file is dropped.

    Args:
        environ: Variables by name; empty ones are ignored.
        prefix: Prefix of the settings' variables.

    Raises:
        SecretFileError: If a file can't be read, is empty or not text, or the variable without
            ``_FILE`` is also set.
    """
    variables = dict(environ)
    for name, path in environ.items():
        plain = name.removesuffix(_SUFFIX)
        if plain == name or not name.startswith(prefix) or DELIMITER not in name or not path:
            continue
        if name.endswith(_LIBRDKAFKAS):
            continue
        if environ.get(plain):
            raise SecretFileError(f"variables {plain} and {name} are both set; leave one out")
        variables[plain] = _content(name, path)
        del variables[name]
    return variables


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
            f"variable {name} names the file {path!r}, which is not UTF-8 text"
        ) from None  # the cause quotes a byte of it
    if not text or len(content) > _LARGEST:
        what = "larger than a megabyte" if text else "empty"
        raise SecretFileError(f"variable {name} names the file {path!r}, which is {what}")
    return text
