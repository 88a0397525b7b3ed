"""Where settings come from: the nearest `errata.toml`, and variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from errata.schemas.errors import ErrataError

FILE, PREFIX, DELIMITER = "errata.toml", "ERRATA_", "__"


class SettingsError(ErrataError):
    """A setting is missing, unknown or malformed."""


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


def own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the form ``ERRATA_<TABLE>__<KEY>`` that are not empty."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX) and DELIMITER in name and value
    }
