"""State that the tasks of one process share: cluster, plan, view, and codecs made once."""

from __future__ import annotations

from dataclasses import dataclass, field

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.declare.declarations import Sink
from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View
from errata.processors.tasks.meter import Meter
from errata.topics.cluster import Cluster
from errata.topics.registry import Registry

DEAD_LETTER, STOP = ON_ERROR = "dead-letter", "stop"
"""What happens to a tuple that a box refuses: it becomes a dead letter, or the process stops."""


@dataclass
class Shared:
    """State that the tasks of one process share.

    Args:
        cluster: Holds the topics.
        plan: The deployed plan.
        registry: Holds the schemas.
        view: Progress, as known to this process.
        compaction_lag_ms: How long a superseded record stays in a connection point's topic.
        on_error: What happens to tuples that a box refuses: ``dead-letter`` or ``stop``.
    """

    cluster: Cluster
    plan: Plan
    registry: Registry
    view: View
    compaction_lag_ms: int
    on_error: str = DEAD_LETTER
    codecs: dict[str, ArcCodec] = field(default_factory=dict)
    sinks: dict[Sink, Outgoing] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc."""
        if arc not in self.codecs:
            self.codecs[arc] = ArcCodec(self.plan.arcs[arc], self.plan.topic(arc), self.registry)
        return self.codecs[arc]

    def outgoing(self, sink: Sink) -> Outgoing:
        """Return the encoder of a sink's records."""
        if sink not in self.sinks:
            arc = self.plan.arcs[sink.arc]
            self.sinks[sink] = Outgoing(arc, sink.topic, sink.envelope, sink.format, self.registry)
        return self.sinks[sink]
