"""Where a process works: Kafka's settings and the folder of local state.

Later ones win: ``errata.toml`` (the nearest one, from the working folder upwards), the plain
variables ``KAFKA_BOOTSTRAP_SERVERS``, ``SCHEMA_REGISTRY_URL`` and ``ERRATA_STATE``, then variables
of the form ``ERRATA_<TABLE>__<KEY>``. librdkafka's keys pass through:
``ERRATA_KAFKA__SASL_PASSWORD`` is ``sasl.password``; with ``_FILE`` behind such a name the value is
what that file holds.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from errata.processors.tasks.shared import DEAD_LETTER, ON_ERROR
from errata.processors.windows.time_windows import duration_ms
from errata.schemas.errors import ErrataError
from errata.settings.address import address
from errata.settings.catalogue import KAFKA, PREFIX, REGISTRY, SETTINGS
from errata.settings.logs import FORMATS, LEVELS, TEXT
from errata.settings.place import DAY_MS, WAIT_MS, Place
from errata.settings.secret_files import from_files
from errata.topics.secrets import Hiding, remember

FILE = "errata.toml"
LISTEN = "ERRATA_HTTP__LISTEN"

_PASSED_ON = (KAFKA, REGISTRY)
"""Tables with the keys of a client's own, which judges them."""

_KEYS = {s.table: {o.key for o in SETTINGS if o.table == s.table} for s in SETTINGS}
"""Keys by table."""
_PLAIN = {s.plain: (s.table, s.key) for s in SETTINGS if s.plain}

Values = dict[tuple[str, str], Any]


class SettingsError(ErrataError):
    """A setting is missing, unknown or malformed."""


def read_settings(environ: Mapping[str, str] | None = None, *, folder: Path | None = None) -> Place:
    """Return where a process works.

    Args:
        environ: Environment variables; this process's when not given; empty ones don't count.
        folder: Where to look for `errata.toml` first; the working folder when not given.

    Raises:
        SettingsError: If no cluster is named, or a setting is none of ours or malformed.

    Example:
        >>> environ = {"KAFKA_BOOTSTRAP_SERVERS": "one:9092", "ERRATA_KAFKA__SASL_USERNAME": "me"}
        >>> read_settings(environ, folder=Path("/")).kafka
        {'bootstrap.servers': 'one:9092', 'sasl.username': 'me'}
    """
    environ = from_files(os.environ if environ is None else environ, prefix=PREFIX)
    found = _from_file(Path.cwd() if folder is None else folder) | _from_environ(environ)
    kafka, registry = (
        Hiding({key: value for (table, key), value in found.items() if table == wanted})
        for wanted in _PASSED_ON
    )
    remember(kafka | registry)
    if not kafka.get("bootstrap.servers"):
        raise SettingsError(
            "no Kafka cluster is configured: set KAFKA_BOOTSTRAP_SERVERS=HOST:PORT (or "
            f'ERRATA_KAFKA__BOOTSTRAP_SERVERS), or write "bootstrap.servers" under [kafka] into '
            f"{FILE}; `errata local` and `errata demo` need no cluster"
        )
    on_error = found.get(("boxes", "on_error"), DEAD_LETTER)
    if on_error not in ON_ERROR:
        raise SettingsError(
            f"boxes.on_error needs to be {' or '.join(ON_ERROR)}; correct it in {FILE}, or "
            "ERRATA_BOXES__ON_ERROR"
        )
    _log_settings(found)
    listen = found.get(("http", "listen"))
    lag = found.get(("topics", "compaction_lag"), DAY_MS)
    wait = found.get(("brokers", "wait"), WAIT_MS)
    return Place(
        kafka=kafka,
        state=Path(found.get(("state", "folder"), _default_state(environ))).expanduser(),
        compaction_lag_ms=duration_ms(lag, what="topics.compaction_lag"),
        registry=registry,
        on_error=on_error,
        wait_ms=duration_ms(wait, what="brokers.wait"),
        listen=None if listen is None else address(str(listen)),
    )


def read_log_settings(environ: Mapping[str, str], *, folder: Path) -> tuple[str, str]:
    """Return the format and the level of what is logged; needs no cluster. See `read_settings`.

    Raises:
        SettingsError: If a setting is none of ours or malformed.
    """
    return _log_settings(_from_file(folder) | _from_environ(from_files(environ, prefix=PREFIX)))


def _log_settings(found: Values) -> tuple[str, str]:
    given = []
    for key, known in (("format", FORMATS), ("level", LEVELS)):
        value = found.get(("log", key), {"format": TEXT, "level": "warning"}[key])
        if value not in known:
            raise SettingsError(
                f"log.{key} needs to be {' or '.join(known)}; correct it in {FILE}, "
                f"or ERRATA_LOG__{key.upper()}"
            )
        given.append(value)
    return given[0], given[1]


def overlaid(environ: Mapping[str, str], settings: Mapping[str, str | int]) -> dict[str, str]:
    """Return variables in which settings, by the names that `errata.toml` has, win over all.

    Example:
        >>> overlaid({"ERRATA_KAFKA__SASL_USERNAME_FILE": "me.txt"}, {"kafka.sasl.username": "me"})
        {'ERRATA_KAFKA__SASL_USERNAME': 'me'}
    """
    pairs = [(name.upper().partition("."), str(value)) for name, value in settings.items()]
    own = {f"{PREFIX}{table}__{key.replace('.', '_')}": value for (table, _, key), value in pairs}
    return {n: v for n, v in environ.items() if n.removesuffix("_FILE") not in own} | own


def _default_state(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home) / "errata"


def _from_environ(environ: Mapping[str, str]) -> Values:
    found: Values = {place: environ[name] for name, place in _PLAIN.items() if environ.get(name)}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or "__" not in name or not value:
            continue
        table, key = name.removeprefix(PREFIX).lower().split("__", 1)
        if table in _PASSED_ON:
            key = key.replace("_", ".")
        _check(table, key, where=f"variable {name}")
        found[table, key] = value
    return found


def _from_file(folder: Path) -> Values:
    path = next((f / FILE for f in (folder, *folder.parents) if (f / FILE).is_file()), None)
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} needs to be TOML: {error}; correct it") from error
    except OSError as error:
        raise SettingsError(f"{path} can't be read: {error.strerror}") from error
    found: Values = {}
    for table, content in tables.items():
        if not isinstance(content, dict):
            _check(table, "", where=str(path))
            raise SettingsError(f"{path}: {table!r} needs to be a table; write it as [{table}]")
        for key, value in _flat(content):
            _check(table, key, where=str(path))
            found[table, key] = _text(value, where=f"{path}: {table}.{key}")
    if ("state", "folder") in found:
        found["state", "folder"] = path.parent / Path(found["state", "folder"]).expanduser()
    return found


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys and values; ``bootstrap.servers`` without quotes is a table in a table to TOML."""
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


def _check(table: str, key: str, *, where: str) -> None:
    if table in _PASSED_ON or key in _KEYS.get(table, ()):
        return
    known = [f"{s.table}.{s.key or '<key>'}" for s in SETTINGS]
    wrong = f"{table}.{key}" if key else table
    raise SettingsError(f"{where}: no setting {wrong!r}; there are {', '.join(known)}")
