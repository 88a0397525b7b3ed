"""Where a process works: its cluster, registry and state folder, as the settings name them.

Later ones override earlier ones: ``errata.toml`` (the nearest one, from the working folder
upwards), the plain variables ``KAFKA_BOOTSTRAP_SERVERS``, ``SCHEMA_REGISTRY_URL`` and
``ERRATA_STATE``, then variables of the form ``ERRATA_<TABLE>__<KEY>``. librdkafka's keys pass
through: ``ERRATA_KAFKA__SASL_PASSWORD`` is ``sasl.password``. If ``_FILE`` is appended to such a
name, the value is the content of that file.

The catalogue is imported only when settings are read, and the client when it connects: they take a
tenth of a second each, and some commands need neither.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from errata.processors.tasks.on_error import DEAD_LETTER
from errata.processors.wire.report import INTERVAL_MS
from errata.settings.logs import LEVEL, TEXT
from errata.settings.origin import DELIMITER, PREFIX, errata_variables, nearest_file
from errata.topics.secrets import Hiding

if TYPE_CHECKING:
    from errata.topics.kafka import KafkaCluster

DAY_MS = 86_400_000
WAIT_MS = 60_000
LISTEN = "ERRATA_HTTP__LISTEN"

log = logging.getLogger("errata")


@dataclass(frozen=True)
class Place:
    """Where a process works.

    Args:
        kafka: librdkafka settings.
        state: Folder of local state: indexes and sweepers' copies.
        compaction_lag_ms: How long superseded records stay in connection points.
        registry: Settings of a schema registry's client; if empty, schemas are kept in a topic.
        interval_ms: How often an ingest task stamps an epoch.
        on_error: What happens to tuples that boxes refuse: ``dead-letter``, or ``stop``.
        wait_ms: How long to wait at start for brokers that don't answer.
        listen: Host and port of health and metrics; None: no port.
    """

    kafka: Mapping[str, str | int]
    state: Path
    compaction_lag_ms: int = DAY_MS
    interval_ms: int = INTERVAL_MS
    registry: Mapping[str, str | int] = field(default_factory=Hiding)
    on_error: str = DEAD_LETTER
    wait_ms: int = WAIT_MS
    listen: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        """Hide secrets when the settings are printed."""
        object.__setattr__(self, "kafka", Hiding(self.kafka))
        object.__setattr__(self, "registry", Hiding(self.registry))


def connect(place: Place) -> KafkaCluster:
    """Return the cluster, once a broker answers."""
    from errata.topics.admin import await_brokers
    from errata.topics.kafka import KafkaCluster

    await_brokers(place.kafka, limit_s=place.wait_ms / 1000, say=log.warning)
    return KafkaCluster(place.kafka)


def read_settings(environ: Mapping[str, str] | None = None, *, folder: Path | None = None) -> Place:
    """Return the cluster, registry and folders that the settings name.

    Args:
        environ: Environment variables; this process's when not given; empty ones are ignored.
        folder: Where to look for `errata.toml` first; the working folder when not given.

    Raises:
        SettingsError: If no cluster is set, or a setting is unknown or malformed.

    Example:
        >>> environ = {"KAFKA_BOOTSTRAP_SERVERS": "one:9092", "ERRATA_KAFKA__SASL_USERNAME": "me"}
        >>> read_settings(environ, folder=Path("/")).kafka
        {'bootstrap.servers': 'one:9092', 'sasl.username': 'me'}
    """
    from errata.settings.catalogue import Settings, load

    environ = os.environ if environ is None else environ
    settings = load(Settings, environ=environ, folder=Path.cwd() if folder is None else folder)
    return Place(
        kafka=settings.kafka.explicit(),
        state=settings.state.folder or _default_state(environ),
        compaction_lag_ms=settings.topics.compaction_lag,
        interval_ms=settings.epochs.interval,
        registry=settings.schema_registry.explicit(),
        on_error=settings.boxes.on_error,
        wait_ms=settings.brokers.wait,
        listen=settings.http.listen,
    )


def read_log_settings(environ: Mapping[str, str], *, folder: Path) -> tuple[str, str]:
    """Return the format and level of the log; needs no cluster. See `read_settings`.

    Raises:
        SettingsError: If a setting is unknown or malformed.
    """
    if nearest_file(folder) is None and not errata_variables(environ):
        return TEXT, LEVEL
    from errata.settings.catalogue import LogSettings, load

    log = load(LogSettings, environ=environ, folder=folder).log
    return log.format, log.level


def overlaid(environ: Mapping[str, str], settings: Mapping[str, str | int]) -> dict[str, str]:
    """Return variables overridden by settings under the names that they have in `errata.toml`.

    Example:
        >>> overlaid({"ERRATA_KAFKA__SASL_USERNAME_FILE": "me.txt"}, {"kafka.sasl.username": "me"})
        {'ERRATA_KAFKA__SASL_USERNAME': 'me'}
    """
    pairs = [(name.upper().partition("."), str(value)) for name, value in settings.items()]
    overrides = {
        f"{PREFIX}{table}{DELIMITER}{key.replace('.', '_')}": value
        for (table, _, key), value in pairs
    }
    others = {n: v for n, v in environ.items() if n.removesuffix("_FILE") not in overrides}
    return others | overrides


def _default_state(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "errata"
