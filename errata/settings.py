"""Where a process works: Kafka's settings and the folder of local state.

Later ones win: ``errata.toml`` (the nearest one, from the working folder upwards), the plain
variables ``KAFKA_BOOTSTRAP_SERVERS``, ``SCHEMA_REGISTRY_URL`` and ``ERRATA_STATE``, then variables
of the form ``ERRATA_<TABLE>__<KEY>``. librdkafka's keys pass through:
``ERRATA_KAFKA__SASL_PASSWORD`` is ``sasl.password``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errata.listen import address
from errata.logs import FORMATS, JSON, LEVELS, TEXT
from errata.worker import DAY_MS, Place
from processors.task import DEAD_LETTER, ON_ERROR, STOP
from processors.windows import duration_ms
from schemas.errors import ErrataError

FILE = "errata.toml"
LISTEN = "ERRATA_HTTP__LISTEN"

_KAFKA, _PREFIX = "kafka", "ERRATA_"


@dataclass(frozen=True)
class Setting:
    """One setting of `errata.toml`.

    Args:
        table: Its table in the file.
        key: Its key in the table; "" for any.
        plain: A plain variable that gives it too.
        default: What it is when nobody gives it, as people read it.
        about: What it does.
    """

    table: str
    key: str
    plain: str
    default: str
    about: str

    @property
    def variable(self) -> str:
        """The variable of ours that gives it."""
        key = self.key.replace(".", "_").upper() or "<KEY>"
        return f"{_PREFIX}{self.table.upper()}__{key}"


SETTINGS = (
    Setting(
        _KAFKA,
        "bootstrap.servers",
        "KAFKA_BOOTSTRAP_SERVERS",
        "none: needed",
        "The cluster: `HOST:PORT`, with commas between several.",
    ),
    Setting(
        _KAFKA,
        "",
        "",
        "librdkafka's",
        "Any key of librdkafka, as `sasl.password`; in a variable, underscores stand for the dots. "
        "Keys that the laws depend on (isolation level, commits, idempotence) are Errata's own.",
    ),
    Setting(
        "schema_registry",
        "url",
        "SCHEMA_REGISTRY_URL",
        "none: schemas are kept in the topic `_errata_schemas`",
        "A schema registry that speaks the API which Kafka's users know.",
    ),
    Setting(
        "state",
        "folder",
        "ERRATA_STATE",
        "`errata` in `$XDG_STATE_HOME`, or in `~/.local/state`",
        "Where indexes and copies of connection points are kept; relative to the file. It can be "
        "lost: what is in it is read again.",
    ),
    Setting(
        "topics",
        "compaction_lag",
        "",
        "`1d`",
        "How long a superseded record stays in the topic of a connection point. A process that was "
        "away for longer computes its boxes anew.",
    ),
    Setting(
        "boxes",
        "on_error",
        "",
        f"`{DEAD_LETTER}`",
        "What becomes of a tuple that a function of yours raises for, or that a box refuses "
        f"otherwise: it is left out, a dead letter (`{DEAD_LETTER}`), or the process ends with a "
        f"message and commits nothing of that epoch (`{STOP}`).",
    ),
    Setting(
        "http",
        "listen",
        "",
        "none: no port is opened",
        "`HOST:PORT` of `/healthz`, `/readyz` and `/metrics` ([operations.md](operations.md)); "
        "port 0: one that is free, which is logged. `errata up` gives its processes the ports "
        "after it.",
    ),
    Setting(
        "log",
        "format",
        "",
        f"`{TEXT}`; in the image `{JSON}`",
        f"Lines for people (`{TEXT}`), or for programs (`{JSON}`), on standard error.",
    ),
    Setting(
        "log",
        "level",
        "",
        "`warning`",
        f"What is logged: {', '.join(f'`{level}`' for level in LEVELS)} and above.",
    ),
)
"""Every setting; `errata.settings_page` prints them."""

_KEYS = {s.table: {o.key for o in SETTINGS if o.table == s.table} for s in SETTINGS}
"""Keys by table; those of ``kafka`` are librdkafka's to judge."""
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
    environ = os.environ if environ is None else environ
    found = _from_file(Path.cwd() if folder is None else folder) | _from_environ(environ)
    kafka = {key: value for (table, key), value in found.items() if table == _KAFKA}
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
    return Place(
        kafka=kafka,
        state=Path(found.get(("state", "folder"), _default_state(environ))).expanduser(),
        compaction_lag_ms=duration_ms(lag, what="topics.compaction_lag"),
        registry_url=found.get(("schema_registry", "url")),
        on_error=on_error,
        listen=None if listen is None else address(str(listen)),
    )


def read_log_settings(environ: Mapping[str, str], *, folder: Path) -> tuple[str, str]:
    """Return the format and the level of what is logged; needs no cluster. See `read_settings`.

    Raises:
        SettingsError: If a setting is none of ours or malformed.
    """
    return _log_settings(_from_file(folder) | _from_environ(environ))


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


def as_variables(settings: Mapping[str, str | int]) -> dict[str, str]:
    """Return settings, by the names that `errata.toml` has, as the variables that win over all.

    Example:
        >>> as_variables({"kafka.sasl.username": "me"})
        {'ERRATA_KAFKA__SASL_USERNAME': 'me'}
    """
    pairs = [(name.upper().partition("."), str(value)) for name, value in settings.items()]
    return {f"{_PREFIX}{table}__{key.replace('.', '_')}": value for (table, _, key), value in pairs}


def _default_state(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home) / "errata"


def _from_environ(environ: Mapping[str, str]) -> Values:
    found: Values = {place: environ[name] for name, place in _PLAIN.items() if environ.get(name)}
    for name, value in environ.items():
        if not name.startswith(_PREFIX) or "__" not in name or not value:
            continue
        table, key = name.removeprefix(_PREFIX).lower().split("__", 1)
        if table == _KAFKA:
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
    if table == _KAFKA or key in _KEYS.get(table, ()):
        return
    known = [f"{s.table}.{s.key or '<librdkafka key>'}" for s in SETTINGS]
    wrong = f"{table}.{key}" if key else table
    raise SettingsError(f"{where}: no setting {wrong!r}; there are {', '.join(known)}")
