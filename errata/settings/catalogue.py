"""Every setting of `errata.toml` with its description, as a pydantic-settings model.

An `ErrataError` that a validator raises passes through pydantic unchanged, so the user sees
Errata's own message. A ValueError becomes a ValidationError, which `load` translates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from errata.processors.tasks.on_error import DEAD_LETTER, ON_ERROR, STOP
from errata.processors.windows.time_windows import duration_ms
from errata.processors.wire.report import INTERVAL_MS
from errata.schemas.errors import ErrataError
from errata.settings.logs import FORMATS, JSON, LEVEL, LEVELS, TEXT
from errata.settings.origin import (
    DELIMITER,
    FILE,
    PREFIX,
    Setting,
    SettingsError,
    from_files,
    nearest_file,
)
from errata.settings.place import DAY_MS, WAIT_MS
from errata.settings.sources import FileSource, VariableSource
from errata.topics.secrets import Hiding


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


def _setting(
    default: object, about: str, *, shown: str = "", plain: str = "", alias: str | None = None
) -> Any:
    """Declare a setting.

    Args:
        default: Its value when it is not set.
        about: What it does.
        shown: The default as the documentation shows it, if that is not its text.
        plain: A plain variable that also sets it.
        alias: Its key, if that is not a valid name in Python.
    """
    extra: dict[str, Any] = {"shown": shown or f"`{default}`", "plain": plain}
    return Field(default, description=about, alias=alias, json_schema_extra=extra)


def _one_of(known: Collection[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"needs to be {' or '.join(known)}")
        return value

    return AfterValidator(check)


def _duration(name: str) -> BeforeValidator:
    return BeforeValidator(partial(duration_ms, what=name))


def _between(least_ms: int, most_ms: int, shown: str) -> AfterValidator:
    def check(value_ms: int) -> int:
        if not least_ms <= value_ms <= most_ms:
            raise ValueError(f"needs to be {shown}")
        return value_ms

    return AfterValidator(check)


def _address(text: object) -> object:
    return None if text is None else address(str(text))


class Table(BaseModel):
    """A table of `errata.toml`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True)
    any_key: ClassVar[tuple[str, str] | None] = None
    """The default and the description of any other key; None if no other keys are allowed."""


class ClientTable(Table):
    """A table with the keys of a client library, which validates them itself."""

    model_config = ConfigDict(extra="allow")

    def explicit(self) -> Hiding:
        """Return the settings that are set, by the client's keys."""
        return Hiding(self.model_dump(by_alias=True, exclude_unset=True))


class Kafka(ClientTable):
    """Settings of librdkafka."""

    any_key = (
        "librdkafka's",
        "Any key of librdkafka, as `sasl.password`; in a variable, underscores stand for the dots. "
        "Errata sets the keys that its guarantees need (isolation level, commits, idempotence).",
    )
    bootstrap_servers: str | int = _setting(
        "",
        "The cluster: `HOST:PORT`, with commas between several.",
        shown="none: needed",
        plain="KAFKA_BOOTSTRAP_SERVERS",
        alias="bootstrap.servers",
    )

    @model_validator(mode="after")
    def _need_a_cluster(self) -> Self:
        if not self.bootstrap_servers:
            raise SettingsError(
                "no Kafka cluster is configured: set KAFKA_BOOTSTRAP_SERVERS=HOST:PORT (or "
                'ERRATA_KAFKA__BOOTSTRAP_SERVERS), or write "bootstrap.servers" under [kafka] into '
                f"{FILE}; `errata local` and `errata demo` need no cluster"
            )
        return self


class Brokers(Table):
    """How long to wait for brokers."""

    wait: Annotated[int, _duration("brokers.wait")] = _setting(
        WAIT_MS,
        "How long a process, or `errata deploy`, waits at its start for brokers that don't answer; "
        "it logs that once.",
        shown="`60s`",
    )


class Registry(ClientTable):
    """Settings of the schema registry's client."""

    any_key = (
        "its client's",
        "Any key of Confluent's client for it: `basic.auth.user.info` (`USER:PASSWORD`), "
        "`ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`.",
    )
    url: str | int = _setting(
        "",
        "A schema registry that speaks the API of Kafka's usual registries.",
        shown="none: schemas are kept in the topic `_errata_schemas`",
        plain="SCHEMA_REGISTRY_URL",
    )


class State(Table):
    """Local state."""

    folder: Annotated[Path | None, AfterValidator(lambda path: path and path.expanduser())] = (
        _setting(
            None,
            "Where indexes and copies of connection points are kept; relative to the file. It can "
            "be lost: a process reads its content again.",
            shown="`errata` in `$XDG_STATE_HOME`, or in `~/.local/state`",
            plain="ERRATA_STATE",
        )
    )


class Topics(Table):
    """Topics that Errata creates."""

    compaction_lag: Annotated[int, _duration("topics.compaction_lag")] = _setting(
        DAY_MS,
        "How long a superseded record stays in the topic of a connection point. A process that was "
        "away for longer computes its boxes anew.",
        shown="`1d`",
    )


class Epochs(Table):
    """How often results are made."""

    interval: Annotated[
        int, _duration("epochs.interval"), _between(INTERVAL_MS, 60_000, "50ms to 60s")
    ] = _setting(
        INTERVAL_MS,
        "How often an ingest task commits what it has read, if it has: results come that late. A "
        "longer interval takes less processor time. It is widened by itself while tasks lag.",
        shown=f"`{INTERVAL_MS}ms`",
    )


class Boxes(Table):
    """Boxes of every network."""

    on_error: Annotated[str, _one_of(ON_ERROR)] = _setting(
        DEAD_LETTER,
        "What happens to a tuple for which a function of yours raises, or that a box refuses: it "
        f"is left out and is a dead letter (`{DEAD_LETTER}`), or the process ends with a message "
        f"and commits nothing of that epoch (`{STOP}`).",
    )


class Http(Table):
    """The HTTP port of a process."""

    listen: Annotated[tuple[str, int] | None, BeforeValidator(_address)] = _setting(
        None,
        "`HOST:PORT` of `/healthz`, `/readyz` and `/metrics` ([operations.md](operations.md)); "
        "port 0: a free one, which is logged. `errata up` gives its processes the ports after it.",
        shown="none: no port is opened",
    )


class Log(Table):
    """Logging."""

    format: Annotated[str, _one_of(FORMATS)] = _setting(
        TEXT,
        f"Lines for people (`{TEXT}`), or for programs (`{JSON}`), on standard error.",
        shown=f"`{TEXT}`; in the image `{JSON}`",
    )
    level: Annotated[str, _one_of(LEVELS)] = _setting(
        LEVEL, f"What is logged: {', '.join(f'`{level}`' for level in LEVELS)} and above."
    )


class _Sourced(BaseSettings):
    """Reads the nearest `errata.toml`, and variables, which override it.

    Args:
        environ: Variables by name; empty ones are ignored.
        folder: Where to look for `errata.toml` first.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        env_nested_max_split=1,
        enable_decoding=False,
        extra="ignore",  # the sources check names
        hide_input_in_errors=True,
        validate_default=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the one with the highest priority first."""
        assert isinstance(init_settings, InitSettingsSource)
        arguments = init_settings.init_kwargs
        file = FileSource(settings_cls, nearest_file(arguments["folder"]), SETTINGS)
        return VariableSource(settings_cls, arguments["environ"], SETTINGS), file


class Settings(_Sourced):
    """All settings."""

    kafka: Kafka = Field(default_factory=dict, validate_default=True)
    brokers: Brokers = Brokers()
    schema_registry: Registry = Registry()
    state: State = State()
    topics: Topics = Topics()
    epochs: Epochs = Epochs()
    boxes: Boxes = Boxes()
    http: Http = Http()
    log: Log = Log()


class LogSettings(_Sourced):
    """The logging settings, which are validated before a command begins."""

    log: Log = Log()


S = TypeVar("S", bound=_Sourced)


def load(kind: type[S], *, environ: Mapping[str, str], folder: Path) -> S:
    """Return settings.

    Args:
        kind: Which settings.
        environ: Environment variables; empty ones are ignored.
        folder: Where to look for `errata.toml` first.

    Raises:
        ErrataError: If a setting is missing, unknown or malformed.
    """
    arguments: dict[str, Any] = {"environ": from_files(environ, prefix=PREFIX), "folder": folder}
    try:
        return kind(**arguments)
    except ValidationError as error:
        # The cause would name an internal class, and not where the setting is.
        raise _settings_error(error) from None


def _settings_error(error: ValidationError) -> SettingsError:
    """Return the first fault of a validation as one of Errata's errors, without the value."""
    fault = error.errors(include_url=False, include_input=False)[0]
    table, key = map(str, fault["loc"][:2])
    needs = str(fault.get("ctx", {}).get("error", fault["msg"]))
    variable = Setting(table, key).variable
    return SettingsError(f"{table}.{key} {needs}; correct it in {FILE}, or {variable}")


def _settings() -> Iterator[Setting]:
    for table, field in Settings.model_fields.items():
        model = field.annotation
        assert isinstance(model, type)
        assert issubclass(model, Table)
        for name, setting in model.model_fields.items():
            extra: Any = setting.json_schema_extra
            about = setting.description or ""
            yield Setting(table, setting.alias or name, extra["plain"], extra["shown"], about)
        if model.any_key:
            yield Setting(table, "", "", *model.any_key)


SETTINGS = tuple(_settings())
"""Every setting; `errata.cli.reference` prints them."""
