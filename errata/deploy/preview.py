"""What `errata deploy` would do to a cluster, computed without changing anything.

Deployment uses the same plan (`versions.plan_next`) and the same lists of topics and schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from errata.deploy.versions import NextVersion, plan_next
from errata.processors.declare.declarations import Source
from errata.processors.declare.faults import NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan.deployed import Change, PlanMismatchError, topic_specs
from errata.processors.tasks import subjects
from errata.processors.tasks.rebuild import CannotRebuildError
from errata.settings.place import Place
from errata.topics.admin import faults, present_topics, require_absent, topic_settings
from errata.topics.cluster import Cluster
from errata.topics.loss_risks import known_risks
from errata.topics.registry import INCOMPATIBLE, SAME, JudgingRegistry
from errata.topics.settings import TopicSpec


@dataclass(frozen=True)
class Difference:
    """A setting of an existing topic that differs from the one it would be created with.

    Args:
        topic: The topic.
        key: The setting; ``partitions`` for their number.
        found: The value it has; a field of `errata plan --json`.
        wanted: The value it would be created with.
        remedy: What to do, if a law depends on the setting; "" if it may stay.
    """

    topic: str
    key: str
    found: str
    wanted: str
    remedy: str = ""


@dataclass(frozen=True)
class UserTopic:
    """A topic that is not the network's own.

    Args:
        kind: ``source`` or ``sink``.
        topic: Its name.
        partitions: Its partition count; None if it does not exist.
    """

    kind: str
    topic: str
    partitions: int | None


@dataclass(frozen=True)
class Preview:
    """The effect of a deployment.

    Args:
        network: Name of the network.
        deployed: The deployed version; None if there is none.
        version: The version that would be deployed.
        users: Topics of users.
        create: Topics that would be created, including those of sinks.
        differ: Settings in which existing topics differ.
        risks: What makes a loss of records in existing topics possible.
        schemas: For each subject, what becomes of it, as in `Verdict`.
        changes: Changes of the plan.
        scopes: What `errata run` has to run.
        sweepers: What `errata sweep` has to run.
        jobs: What `errata spark` has to run.
        refused: Why the deployment would be refused; empty if it would not.
    """

    network: str
    deployed: int | None
    version: int | None
    users: Sequence[UserTopic] = ()
    create: Sequence[TopicSpec] = ()
    differ: Sequence[Difference] = ()
    risks: Sequence[str] = ()
    schemas: dict[str, str] | None = None
    changes: Sequence[Change] = ()
    scopes: Sequence[str] = ()
    sweepers: Sequence[str] = ()
    jobs: Sequence[str] = ()
    refused: str = ""

    @property
    def does_something(self) -> bool:
        """Whether deploying would create or change anything."""
        new_schemas = [name for name, kind in (self.schemas or {}).items() if kind != SAME]
        return bool(self.create or self.changes or new_schemas or self.deployed is None)

    @property
    def moves(self) -> bool:
        """Whether deploying would change what is deployed."""
        return bool(self.changes)


def preview(network: Network, place: Place, cluster: Cluster, registry: JudgingRegistry) -> Preview:
    """Return what deploying a network would do; see `preview_version` for a known plan.

    Raises:
        ClusterError: If the cluster or the registry can't be used.
        NetworkError: If the network can't work on any cluster.
    """
    existing = present_topics(place.kafka)
    users = users_of(network, existing)
    missing = [user.topic for user in users if user.kind == "source" and user.partitions is None]
    if missing:
        names = ", ".join(map(repr, missing))
        refusal = f"sources read the topics {names}, which do not exist; create them"
        return Preview(network.name, None, None, users, refused=refusal)
    try:
        planned = plan_next(network, cluster, registry)
    except (PlanMismatchError, CannotRebuildError, NetworkError) as error:
        return Preview(network.name, None, None, users, refused=str(error))
    return preview_version(planned, users, existing, place, registry)


def users_of(network: Network, existing: Mapping[str, int]) -> list[UserTopic]:
    """Return the users' topics of a network, given the partition counts of all existing topics."""
    sources = [d for d in network.declarations.values() if isinstance(d, Source)]
    topics = [("source", s.topic) for s in sources] + [("sink", s.topic) for s in network.sinks]
    return [UserTopic(kind, topic, existing.get(topic)) for kind, topic in topics]


def preview_version(
    planned: NextVersion,
    users: Sequence[UserTopic],
    existing: Mapping[str, int],
    place: Place,
    registry: JudgingRegistry,
) -> Preview:
    """Return what deploying a known plan would do.

    Args:
        planned: The plan.
        users: The users' topics.
        existing: Partition counts by topic, of all topics of the cluster.
        place: The cluster and settings to deploy with.
        registry: The schema registry.
    """
    plan = planned.plan
    sinks = [sink.topic for sink in plan.topology.sinks if sink.topic in existing]
    specs = topic_specs(plan, compaction_lag_ms=place.compaction_lag_ms, existing=sinks)
    differ = [*_differences([spec for spec in specs if spec.name in existing], existing, place)]
    refused = [f"topic {d.topic!r} needs {d.key} {d.wanted}" for d in differ if d.remedy]
    create = [spec for spec in specs if spec.name not in existing]
    require_absent(place.kafka, [spec.name for spec in create])
    verdicts = subjects.verdicts(plan, registry)
    bad = [verdict for verdict in verdicts if verdict.kind == INCOMPATIBLE]
    if bad:
        refused.append(str(subjects.IncompatibleSchemaError(plan.network, bad)))
    return Preview(
        plan.network,
        None if planned.old is None else planned.old.deployment.version,
        plan.deployment.version,
        users,
        create=create,
        differ=differ,
        risks=known_risks(place.kafka, [spec.name for spec in specs if spec.name in existing]),
        schemas={verdict.subject: verdict.kind for verdict in verdicts},
        changes=planned.changes,
        scopes=plan.topology.process_scopes,
        sweepers=plan.replayed_points(),
        jobs=list(plan.topology.jobs),
        refused="; ".join(refused),
    )


def _differences(
    specs: Sequence[TopicSpec], existing: Mapping[str, int], place: Place
) -> Iterator[Difference]:
    settings = topic_settings(place.kafka, [spec.name for spec in specs])
    for spec in specs:
        actual = settings[spec.name]
        broken = {f.what: f for f in faults(spec, partitions=existing[spec.name], config=actual)}
        if fault := broken.get("partitions"):
            yield Difference(spec.name, fault.what, fault.actual, fault.need, fault.remedy)
        for key, need in spec.config.items():
            value, remedy = actual.get(key, ""), broken[key].remedy if key in broken else ""
            if set(need.split(",")) != set(value.split(",")):
                yield Difference(spec.name, key, value, need, remedy)
