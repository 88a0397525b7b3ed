"""The sources of settings for pydantic-settings: a file, and variables.

The sources refuse unknown names, since only they know where a name was set, and TOML values of
types that no setting takes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    TomlConfigSettingsSource,
)

from errata.settings.origin import DELIMITER, PREFIX, Setting, SettingsError, errata_variables
from errata.topics.secrets import Hiding, remember


class FileSource(TomlConfigSettingsSource):
    """A TOML file.

    Args:
        settings_cls: The model of the settings.
        path: The file; None if there is none.
        known: All settings.

    Raises:
        SettingsError: If the file can't be read, or a setting is unknown or malformed.
    """

    def __init__(
        self, settings_cls: type[BaseSettings], path: Path | None, known: Sequence[Setting]
    ) -> None:
        self._path, self._known = path, known
        self._tables: dict[str, Hiding] = {}
        try:
            super().__init__(settings_cls, toml_file=path)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} needs to be TOML: {error}; correct it") from error
        except OSError as error:
            raise SettingsError(f"{path} can't be read: {error.strerror}") from error
        if path is None:
            return
        self._tables = {table: self._table(table, keys) for table, keys in self.toml_data.items()}
        state: dict[str, Any] = self._tables.get("state", Hiding())
        if "folder" in state:
            state["folder"] = path.parent / Path(str(state["folder"])).expanduser()

    def __call__(self) -> dict[str, Any]:
        """Return the settings of the file by table and key."""
        return self._tables

    def _table(self, table: str, content: object) -> Hiding:
        if not isinstance(content, dict):
            _check(self._known, table, "", where=str(self._path))
            raise SettingsError(
                f"{self._path}: {table!r} needs to be a table; write it as [{table}]"
            )
        settings = {}
        for key, value in _flat(content):
            _check(self._known, table, key, where=str(self._path))
            settings[key] = _text(value, where=f"{self._path}: {table}.{key}")
        return _hiding(settings)


class VariableSource(EnvSettingsSource):
    """Variables of the form ``ERRATA_<TABLE>__<KEY>``, and plain ones, which they override.

    In tables with arbitrary keys, underscores stand for dots.

    Args:
        settings_cls: The model of the settings.
        environ: Variables by name; empty ones are ignored.
        known: All settings.

    Raises:
        SettingsError: If a setting is unknown.
    """

    def __init__(
        self, settings_cls: type[BaseSettings], environ: Mapping[str, str], known: Sequence[Setting]
    ) -> None:
        super().__init__(settings_cls)
        self._dotted, variables = {s.table for s in known if not s.key}, errata_variables(environ)
        for name in variables:
            table, _, key = name.removeprefix(PREFIX).lower().partition(DELIMITER)
            _check(known, table, self._key(table, key), where=f"variable {name}")
        plain = {s.variable: environ[s.plain] for s in known if environ.get(s.plain)}
        all_variables = (*plain.items(), *variables.items())
        self.env_vars = {name.lower(): value for name, value in all_variables}

    def __call__(self) -> dict[str, Any]:
        """Return the settings by table and key."""
        return {
            table: _hiding({self._key(table, key): value for key, value in keys.items()})
            for table, keys in super().__call__().items()
        }

    def _key(self, table: str, key: str) -> str:
        return key.replace("_", ".") if table in self._dotted else key


def _hiding(settings: Mapping[str, Any]) -> Hiding:
    """Return settings whose secrets are hidden when printed; the library can log its sources."""
    remember(settings)
    return Hiding(settings)


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys and values; unquoted ``bootstrap.servers`` is a nested table in TOML."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: object, *, where: str) -> str | int:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return str(value)
    raise SettingsError(f"{where} needs a text or a number, found {type(value).__name__}")


def _check(known: Sequence[Setting], table: str, key: str, *, where: str) -> None:
    if any(s.table == table and s.key in (key, "") for s in known):
        return
    names = [f"{s.table}.{s.key or '<key>'}" for s in known]
    unknown = f"{table}.{key}" if key else table
    raise SettingsError(f"{where}: no setting {unknown!r}; the settings are {', '.join(names)}")
