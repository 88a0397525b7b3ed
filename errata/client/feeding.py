"""Sends a file of revisions to a user's topic, as the source's producer would."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from errata.client.sending import source_records
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.envelopes.batch import ROW
from errata.processors.ingest.intake import Intake
from errata.processors.plan.topology import Source
from errata.schemas.partition import partitions
from errata.topics.cluster import Cluster
from errata.topics.memory import MemoryCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import Registry, SchemaRegistry

PAUSE_S = 0.2
"""How long after the end of an epoch the next one begins: ingest ends its own every 50 ms."""
_MOST_SENT, _TURN_S = 5_000, 0.1


@dataclass
class Fed:
    """What was sent.

    Args:
        sent: Number of records.
        epochs: Number of epochs of the file that have lines.
        refused: Number of lines that are no revisions of the source, by reason.
        first: The first of them: the number of its line among the revisions, and what is wrong.
    """

    sent: int = 0
    epochs: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    first: tuple[int, str] | None = None


class Feeder:
    """Sends lines of native JSON to the topic of a source, in its envelope and format.

    Args:
        source: The source; not one that is bound to another network's arc.
        cluster: The cluster of its topic.
        registry: The registry for Avro schemas.
        rate: Records in a second, at most; None: as fast as possible.
        pause_s: How long to wait after an epoch.
        stop: Returns whether to end.
    """

    def __init__(
        self,
        source: Source,
        cluster: Cluster,
        registry: Registry,
        *,
        rate: float | None = None,
        pause_s: float = PAUSE_S,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.source, self.cluster, self.registry = source, cluster, registry
        self.rate, self.pause_s, self.stop = rate, pause_s, stop
        self.fed = Fed()
        self._partitions = cluster.partitions(source.topic)
        scratch = MemoryCluster()  # the schemas of the decoded lines are nobody's
        scratch.create(SCHEMAS_TOPIC, 1)
        native = replace(source, envelope="native", format="json")
        self._intake = Intake(native, ArcCodec(source.arc, "lines", SchemaRegistry(scratch)))
        self._is_verbatim = (source.envelope, source.format) == ("native", "json")
        self._lines, self._due_s = 0, time.monotonic()

    def feed(self, pieces: Iterator[list[bytes] | None]) -> Fed:
        """Send pieces of lines, with a pause after each epoch; return what was sent in all.

        Raises:
            NoSuchRecordError: If the envelope has no record for a revision.
            ClusterError: If the records can't be sent.
        """
        has_lines = False
        for piece in pieces:
            if piece is None:
                self._end_epoch(has_lines)
                has_lines = False
                continue
            for start in range(0, len(piece), self._step):
                if self.stop():
                    return self.fed
                self._send(piece[start : start + self._step])
            has_lines |= bool(piece)
        self._end_epoch(has_lines)
        return self.fed

    @property
    def _step(self) -> int:
        return _MOST_SENT if self.rate is None else max(1, int(self.rate * _TURN_S))

    def _end_epoch(self, has_lines: bool) -> None:
        self.cluster.flush()
        self.fed.epochs += has_lines
        if has_lines:
            self._rest(self.pause_s)

    def _rest(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while not self.stop() and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _TURN_S))

    def _send(self, lines: list[bytes]) -> None:
        decoded = self._intake.decode(lines)
        for refusal in decoded.refused:
            self.fed.refused[refusal.reason] += 1
            if self.fed.first is None:
                self.fed.first = self._lines + refusal.row + 1, refusal.detail
        self._lines += len(lines)
        revisions = decoded.frame.sort(ROW, maintain_order=True)
        if revisions.is_empty():
            return
        now_ms = time.time_ns() // 1_000_000
        records = source_records(self.source, revisions, registry=self.registry, time_ms=now_ms)
        if self._is_verbatim:
            records = self._verbatim(revisions, lines, [key for key, _ in records])
        places = partitions([key for key, _ in records], self._partitions).tolist()
        for (key, value), place in zip(records, places, strict=True):
            self.cluster.send(self.source.topic, partition=place, key=key, value=value)
        self.fed.sent += len(records)
        if self.rate is not None:
            self.cluster.flush()
            self._due_s = max(self._due_s, time.monotonic() - 1) + len(records) / self.rate
            self._rest(self._due_s - time.monotonic())

    def _verbatim(
        self, revisions: pl.DataFrame, lines: list[bytes], keys: list[bytes]
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the lines themselves; a line may have made several revisions."""
        rows = revisions[ROW].to_list()
        by_row = dict(zip(reversed(rows), reversed(keys), strict=True))
        return [(by_row[row], lines[row]) for row in dict.fromkeys(rows)]
