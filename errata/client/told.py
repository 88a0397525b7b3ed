"""What is told about why a result has its values: causes with their records, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import polars as pl

from errata.client import rows
from errata.client.identity import require_one
from errata.client.origin import Origin, Origins
from errata.client.reading import Tail
from errata.client.texts import as_duration
from errata.client.why import Explanation, Why
from errata.deploy.deployment import DeployedNetwork
from errata.observe.diagnosis import moment
from errata.observe.network_progress import Progress
from errata.processors.boxes.matching import with_identities
from errata.processors.wire.report import INTERVAL_MS
from errata.schemas.arc import HIDDEN_PREFIX, Arc


class ArcHistory:
    """Reads the revisions that arcs have now.

    Args:
        deployment: The network.
        progress: The reports of its tasks.
    """

    def __init__(self, deployment: DeployedNetwork, progress: Progress) -> None:
        self.deployment, self.progress = deployment, progress

    def __call__(self, arc: str, wanted: pl.DataFrame | None) -> pl.DataFrame:
        """Return the committed revisions of an arc; `wanted` gives fields of an identity."""
        codec = self.deployment.codec(arc)
        nothing = codec.empty.with_columns(pl.lit(0, pl.Int32).alias("partition"))
        reading = Tail(self.progress, codec, from_beginning=True)
        try:
            parts = reading.upto_now()
            if wanted is not None:
                parts = (with_identities(codec.arc, part, wanted) for part in parts)
            return pl.concat([nothing, *parts])
        finally:
            reading.close()


class Story:
    """The revisions of one tuple of an arc, with what caused each.

    Args:
        deployment: The network.
        arc: An arc of it that has a topic.
        wanted: Fields of the tuple's identity; see `errata.client.identity.wanted`.
        progress: The reports of its tasks.

    Raises:
        UnknownNameError: If a source of the arc is the arc of another network.
    """

    def __init__(
        self,
        deployment: DeployedNetwork,
        arc: str,
        wanted: pl.DataFrame | None,
        progress: Progress,
    ) -> None:
        self.deployment, self.arc = deployment, deployment.plan.topology.arcs[arc]
        for source in deployment.plan.topology.sources_of[arc]:
            deployment.require_own_source(source)
        history = ArcHistory(deployment, progress)
        self._why = Why(deployment.plan, arc, wanted, history, watermark=progress.watermark_now)
        self._origins: dict[str, Origins] = {}

    def explanations(self, limit: int) -> Iterator[Explanation]:
        """Yield the explanations of the last revisions, newest first.

        Raises:
            NoSuchResultError: If the topic has no such tuple, or several.
        """
        revisions = self._why.revisions()
        require_one(self.arc, revisions)
        return islice(self._why.explanations(revisions), limit)

    def plain(self, told: Explanation, *, with_inputs: bool) -> dict[str, Any]:
        """Return an explanation as plain values."""
        (line,) = rows.revisions(self.arc, told.revision)
        found: dict[str, Any] = {
            "arc": self.arc.name,
            **line,
            "at": line["epoch"] * INTERVAL_MS,
            "is_explained": told.is_recomputed,
        }
        if not told.is_recomputed:
            return found | {"reason": self.gone()}
        found["causes"] = [
            {"source": source, **cause, **_place(origin)}
            for source, cause, origin in self.records(told.causes)
        ]
        found["causes_are"] = "enough" if told.are_enough else "needed"
        found["not_tried"] = told.not_tried
        if told.closed is not None:
            found["watermark"] = dict(
                zip(("before", "after"), map(moment, told.closed), strict=True)
            )
            found["moved_by"] = [
                {"source": source, **cause, **_place(origin)}
                for source, cause, origin in self.records(told.moved_by)
            ]
        found["between"] = [
            {"arc": arc.name, **without_epoch(revision)} for arc, revision in self.between(told)
        ]
        found["boxes"] = told.ways
        if with_inputs:
            found["inputs"] = {
                source: {
                    side: rows.tuples(self.named(source), tuples)
                    for side, tuples in zip(("before", "after"), sides, strict=True)
                }
                for source, sides in told.inputs.items()
            }
        return found

    def records(
        self, revisions: Mapping[str, pl.DataFrame]
    ) -> Iterator[tuple[str, dict[str, Any], Origin | None]]:
        """Yield revisions by source, with the source and the record of each."""
        for source, frame in revisions.items():
            if source not in self._origins:
                kind = self.deployment.plan.topology.sources[source]
                codec = self.deployment.codec(source)
                self._origins[source] = Origins(self.deployment.cluster, kind, codec)
            lines = rows.revisions(self.named(source), frame)
            origins = self._origins[source].of(frame)
            yield from zip([source] * len(lines), lines, origins, strict=True)

    def between(self, told: Explanation) -> Iterator[tuple[Arc, dict[str, Any]]]:
        """Yield the revisions on the way, with the epoch of the result."""
        epoch = told.revision["epoch"][0]
        for name, revisions in told.between.items():
            arc = self.named(name)
            if not name.startswith(HIDDEN_PREFIX):
                for line in rows.revisions(arc, revisions.with_columns(epoch=pl.lit(epoch))):
                    yield arc, line

    def named(self, name: str) -> Arc:
        """Return the arc of a name."""
        return self.deployment.plan.topology.arcs[name]

    def gone(self) -> str:
        """Return why a revision can't be explained."""
        kept = {
            as_duration(kept_ms)
            for name in self.deployment.plan.topology.sources_of[self.arc.name]
            for _, kept_ms in [self.deployment.retention(name)]
        }
        return (
            "can't be explained: recomputing does not give these values, since what its sources "
            f"held then is gone; they keep superseded revisions for {' or '.join(sorted(kept))}"
        )


def without_epoch(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a revision without its epoch."""
    return {name: value for name, value in line.items() if name != "epoch"}


def _place(origin: Origin | None) -> dict[str, Any]:
    return dict.fromkeys(Origin._fields) if origin is None else origin._asdict()
