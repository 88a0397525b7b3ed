"""Follows many arcs of a network at once, over one connection, epoch by epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from errata.client.reading import Tail
from errata.deploy.deployment import DeployedNetwork
from errata.observe.network_progress import Progress
from errata.topics.cluster import TopicPartition
from errata.topics.shared_reader import SharedReads


class Follower:
    """Returns the revisions of arcs as their epochs become complete.

    A step costs what has changed, however many arcs there are.

    Args:
        deployment: The network.
        arcs: Arcs of it that have topics.
        since_ms: Begin with epochs after this time, in ms since 1970.
    """

    def __init__(
        self, deployment: DeployedNetwork, arcs: Collection[str], *, since_ms: int
    ) -> None:
        self._shared = SharedReads(deployment.cluster)
        cluster = self._shared.sharing()
        self.progress = Progress(cluster, plan=deployment.plan, believes=True)
        self.progress.catch_up()
        self._tails = {
            arc: Tail(self.progress, deployment.codec(arc), since_ms=since_ms) for arc in arcs
        }
        self._of: Mapping[TopicPartition, str] = {
            source.place: arc for arc, tail in self._tails.items() for source in tail.inputs
        }
        self._unfinished: set[str] = set()

    def step(self, *, wait_s: float = 0.0) -> dict[str, pl.DataFrame]:
        """Return by arc the revisions of whole epochs that have become complete, in order.

        Args:
            wait_s: How long to wait if nothing has arrived.
        """
        self._shared.fetch(timeout_s=wait_s)
        self.progress.poll()
        read = {self._of[place] for place in self._shared.waiting if place in self._of}
        found = dict[str, pl.DataFrame]()
        for arc in sorted(read | self._unfinished):
            revisions = self._tails[arc].advance()
            if revisions is not None and revisions.height:
                found[arc] = revisions
            self._unfinished.discard(arc)
            if any(source.pending for source in self._tails[arc].inputs):
                self._unfinished.add(arc)
        return found

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        self.progress.close()
        for tail in self._tails.values():
            tail.close()
        self._shared.close()
