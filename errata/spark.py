"""The Spark data source: ``spark.read.format("errata")`` and ``spark.readStream``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from errata.schemas.errors import ErrataError
from errata.settings.catalogue import SETTINGS
from errata.settings.place import overlaid, read_settings
from errata.spark_jobs.data_source import REVISIONS, TABLE, BatchReader, Opened, StreamReader
from errata.topics.secrets import Hiding

FORMAT = "errata"
_NAMES = {"network", "arc", "content", "as_of", "startingepoch", "maxrecordspertrigger"}
_SETTINGS = ("kafka.", "schema_registry.")
_EARLIEST = "earliest"


class OptionError(ErrataError):
    """An option of a reader is missing, unknown or malformed."""


def register(session: Any) -> Any:
    """Register the data source ``errata`` with a Spark session, and return the session.

    Settings that are not given as options come from this process at this time: from its environment
    and the nearest `errata.toml` (`docs/settings.md`).

    Args:
        session: The session; its driver runs on this machine.

    Example: ``register(spark).read.format("errata").option("network", "tape")``
    """
    plain = {setting.plain for setting in SETTINGS}
    environ = {n: v for n, v in os.environ.items() if n in plain or n.startswith("ERRATA_")}
    folder = Path.cwd()

    class ArcSource(DataSource):  # type: ignore[misc]
        """An arc of a deployed network."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> StructType:
            options = Options.of(self.options)
            return options.open(environ, folder).schema(options.content)

        def reader(self, schema: StructType) -> BatchReader:
            options = Options.of(self.options)
            opened = options.open(environ, folder)
            return BatchReader(opened, options.content, options.as_of, options.first)

        def streamReader(self, schema: StructType) -> StreamReader:
            options = Options.of(self.options)
            if options.content == TABLE or options.as_of is not None:
                raise OptionError(
                    f'a stream reads revisions: it needs .option("content", "{REVISIONS}"), and '
                    "takes no as_of"
                )
            return StreamReader(options.open(environ, folder), options.first, options.most)

    session.dataSource.register(ArcSource)
    return session


@dataclass(frozen=True)
class Options:
    """The options of a reader.

    Args:
        network: The network's name.
        arc: The arc's name.
        content: `TABLE` or `REVISIONS`.
        as_of: The last epoch to read; None for the last complete one.
        first: The first epoch of revisions; None for the earliest in the topic.
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
                "arc, content, as_of, startingEpoch, maxRecordsPerTrigger, kafka.* and "
                "schema_registry.*"
            )
        for name in ("network", "arc"):
            if not lowered.get(name):
                raise OptionError(f'format {FORMAT!r} needs .option("{name}", ...)')
        content = lowered.get("content", TABLE)
        if content not in (TABLE, REVISIONS):
            raise OptionError(f"option content needs {TABLE!r} or {REVISIONS!r}, found {content!r}")
        as_of, first = _epoch(lowered, "as_of"), _epoch(lowered, "startingepoch")
        if content == TABLE and first is not None:
            raise OptionError(f"option startingEpoch is for {REVISIONS}; a table takes as_of")
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
