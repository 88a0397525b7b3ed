"""The deployment of a network: which version of its plan, and the topics that it writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from errata.processors.plan.arc_name import ArcName, read_by
from errata.processors.plan.topology import Scope
from errata.topics import names


@dataclass(frozen=True)
class Deployment:
    """What is deployed under a network's name.

    Args:
        network: The network's name.
        id: Id of the deployment, to which local state belongs; "" before it.
        version: Version of the plan; the next one has other numbers of partitions.
        first_epoch: The first epoch that this version processes; moved tuples belong to the epoch
            before it.
        generations: By arc: the version that made its topic; 1 if absent.
    """

    network: str
    id: str = ""
    version: int = 1
    first_epoch: int = 0
    generations: dict[str, int] = field(default_factory=dict)

    def topic(self, arc: str) -> str:
        """Return the topic of an arc."""
        version = self.generations.get(arc, 1)
        if ArcName.parse(arc).is_exchange:
            return names.exchange_topic(self.network, read_by(arc), version=version)
        return names.arc_topic(self.network, arc, version=version)

    def requests(self, arc: str) -> str:
        """Return the topic of the requests to the sweepers of a connection point."""
        return names.requests_topic(self.network, arc, version=self.generations.get(arc, 1))

    def replies(self, scope: Scope) -> str:
        """Return the topic of the replies to the tasks of a scope, one partition per task."""
        version = self.generations.get(scope.inputs[0], 1)
        return names.replay_topic(self.network, scope.name, version=version)
