"""The Spark data source: ``spark.read.format("errata")`` and ``spark.readStream``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from errata.processors.wire.report import INTERVAL_MS
from errata.schemas.errors import ErrataError
from errata.settings.catalogue import SETTINGS
from errata.settings.place import overlaid, read_settings
from errata.spark_jobs.data_source import (
    CHANGES,
    REVISIONS,
    TABLE,
    BatchReader,
    Opened,
    StreamReader,
)
from errata.topics.secrets import Hiding

FORMAT = "errata"
_AS_OF = ("as_of", "asofepoch", "timestampasof")
_NAMES = {"network", "arc", "content", "startingepoch", "maxrecordspertrigger", *_AS_OF}
_SETTINGS = ("kafka.", "schema_registry.")
_EARLIEST = "earliest"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONTENTS = (TABLE, REVISIONS, CHANGES)


class OptionError(ErrataError):
    """An option of a reader is missing, unknown or malformed."""


class ArcSource(DataSource):  # type: ignore[misc]
    """An arc of a deployed network.

    Settings that are not given as options come from the environment and the nearest `errata.toml`
    (`docs/settings.md`).
    """

    environ: ClassVar[Mapping[str, str] | None] = None
    """Variables with settings; those of the process that plans the query if None."""
    folder: ClassVar[Path | None] = None
    """Where to look for `errata.toml` first; the folder of that process if None."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the type of the rows."""
        options = Options.of(self.options)
        return self._open(options).schema(options.content)

    def reader(self, schema: StructType) -> BatchReader:
        """Return what reads a data frame."""
        options = Options.of(self.options)
        return BatchReader(self._open(options), options.content, options.as_of, options.first)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return what reads a stream.

        Raises:
            OptionError: If an option is only for data frames.
        """
        options = Options.of(self.options)
        if options.content == TABLE or options.as_of is not None:
            raise OptionError(
                f'a stream reads what happened: it needs .option("content", "{REVISIONS}") or '
                f'"{CHANGES}", and takes no as_of'
            )
        return StreamReader(self._open(options), options.first, options.most, options.content)

    def _open(self, options: Options) -> Opened:
        environ = os.environ if self.environ is None else self.environ
        return options.open(environ, self.folder or Path.cwd())


def register(session: Any) -> Any:
    """Register the data source ``errata`` with a Spark session, and return the session.

    Spark finds the source without it where this package is installed (`pyspark_errata`). A source
    that is registered keeps the settings of this process as they are now, and the folder that it is
    in.

    Args:
        session: The session; its driver runs on this machine.

    Example: ``register(spark).read.format("errata").option("network", "tape")``
    """
    plain = {setting.plain for setting in SETTINGS}
    there = {n: v for n, v in os.environ.items() if n in plain or n.startswith("ERRATA_")}

    class Registered(ArcSource):
        """An arc, read with the settings of the process that registered it."""

        environ = there
        folder = Path.cwd()

    session.dataSource.register(Registered)
    return session


@dataclass(frozen=True)
class Options:
    """The options of a reader.

    Args:
        network: The network's name.
        arc: The arc's name.
        content: `TABLE`, `REVISIONS` or `CHANGES`.
        as_of: The last epoch to read; None for the last complete one.
        first: The first epoch of revisions or changes; None for the earliest in the topic.
        most: About how many revisions a batch of a stream takes at most; None for no limit.
        settings: Settings of Kafka and the schema registry, by their names in `errata.toml`.
    """

    network: str
    arc: str
    content: str
    as_of: int | None
    first: int | None
    most: int | None
    settings: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        """Return Spark's options; their names may have any case.

        Raises:
            OptionError: If one is missing, unknown or malformed.
        """
        lowered = {name.lower(): value for name, value in options.items()}
        settings = Hiding({n: v for n, v in lowered.items() if n.startswith(_SETTINGS)})
        unknown = sorted(lowered.keys() - settings.keys() - _NAMES)
        if unknown:
            raise OptionError(
                f"format {FORMAT!r} has no option {', '.join(map(repr, unknown))}: it has network, "
                "arc, content, asOfEpoch, timestampAsOf, startingEpoch, maxRecordsPerTrigger, "
                "kafka.* and schema_registry.*"
            )
        for name in ("network", "arc"):
            if not lowered.get(name):
                raise OptionError(f'format {FORMAT!r} needs .option("{name}", ...)')
        content = lowered.get("content", TABLE)
        if content not in _CONTENTS:
            known = ", ".join(map(repr, _CONTENTS))
            raise OptionError(f"option content needs one of {known}, found {content!r}")
        as_of, first = _as_of(lowered), _epoch(lowered, "startingepoch")
        if content == TABLE and first is not None:
            raise OptionError(
                f"option startingEpoch is for {REVISIONS} and {CHANGES}; a table takes asOfEpoch"
            )
        most = _number(lowered, "maxrecordspertrigger")
        return cls(lowered["network"], lowered["arc"], content, as_of, first, most, settings)

    def open(self, environ: Mapping[str, str], folder: Path) -> Opened:
        """Return the arc that the options name.

        Args:
            environ: Variables with settings that are not among the options.
            folder: Where to look for `errata.toml` first.
        """
        place = read_settings(overlaid(environ, self.settings), folder=folder)
        return Opened.of(
            place.kafka, network=self.network, arc=self.arc, registry_settings=place.registry
        )


def _as_of(options: Mapping[str, str]) -> int | None:
    given = [name for name in _AS_OF if name in options]
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} say the same: give one of them")
    if given != ["timestampasof"]:
        return _epoch(options, given[0]) if given else None
    text = options["timestampasof"]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(
            f"option timestampAsOf needs a time such as 2026-01-31T12:00:00Z, found {text!r}"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=INTERVAL_MS)


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not (text.isascii() and text.isdigit() and int(text)):
        raise OptionError(f"option {name} needs a number of at least 1, found {text!r}")
    return None if text is None else int(text)


def _epoch(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name, _EARLIEST if name == "startingepoch" else None)
    if text is None or (name == "startingepoch" and text.lower() == _EARLIEST):
        return None
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"option {name} needs the number of an epoch, found {text!r}")
    return int(text)
