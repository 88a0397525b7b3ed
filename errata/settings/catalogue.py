"""Every setting of `errata.toml`, and what it does."""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.tasks.shared import DEAD_LETTER, STOP
from errata.settings.logs import JSON, LEVELS, TEXT

KAFKA, REGISTRY, PREFIX = "kafka", "schema_registry", "ERRATA_"


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
        return f"{PREFIX}{self.table.upper()}__{key}"


SETTINGS = (
    Setting(
        KAFKA,
        "bootstrap.servers",
        "KAFKA_BOOTSTRAP_SERVERS",
        "none: needed",
        "The cluster: `HOST:PORT`, with commas between several.",
    ),
    Setting(
        KAFKA,
        "",
        "",
        "librdkafka's",
        "Any key of librdkafka, as `sasl.password`; in a variable, underscores stand for the dots. "
        "Keys that the laws depend on (isolation level, commits, idempotence) are Errata's own.",
    ),
    Setting(
        "brokers",
        "wait",
        "",
        "`60s`",
        "How long a process, or `errata deploy`, waits at its start for brokers that don't answer; "
        "it says so once.",
    ),
    Setting(
        REGISTRY,
        "url",
        "SCHEMA_REGISTRY_URL",
        "none: schemas are kept in the topic `_errata_schemas`",
        "A schema registry that speaks the API of Kafka's usual registries.",
    ),
    Setting(
        REGISTRY,
        "",
        "",
        "its client's",
        "Any key of Confluent's client for it: `basic.auth.user.info` (`USER:PASSWORD`), "
        "`ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`.",
    ),
    Setting(
        "state",
        "folder",
        "ERRATA_STATE",
        "`errata` in `$XDG_STATE_HOME`, or in `~/.local/state`",
        "Where indexes and copies of connection points are kept; relative to the file. It can be "
        "lost: a process reads its content again.",
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
        "What happens to a tuple for which a function of yours raises, or that a box refuses: it "
        f"is left out and is a dead letter (`{DEAD_LETTER}`), or the process ends with a message "
        f"and commits nothing of that epoch (`{STOP}`).",
    ),
    Setting(
        "http",
        "listen",
        "",
        "none: no port is opened",
        "`HOST:PORT` of `/healthz`, `/readyz` and `/metrics` ([operations.md](operations.md)); "
        "port 0: a free one, which is logged. `errata up` gives its processes the ports after it.",
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
"""Every setting; `errata.settings.page` prints them."""
