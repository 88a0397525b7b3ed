"""What the plan topic holds: the deployed plan, and the declared ends of sources."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any
from uuid import uuid4

from processors.plan import Plan
from schemas.errors import ErrataError
from topics import names, settings
from topics.catch_up import catch_up
from topics.cluster import Cluster, TopicPartition
from topics.settings import TopicSpec

PLAN_KEY = "plan"
_END = "end."


class PlanMismatchError(ErrataError):
    """The network differs from the one that is deployed under its name."""


def declared_end(key: str) -> str | None:
    """Return the source whose end a record of this key declares; None if it declares none."""
    return key.removeprefix(_END) if key.startswith(_END) else None


def declare_end(cluster: Cluster, plan: Plan, source: str) -> dict[int, int]:
    """Declare that a source ends where its topic ends now; returns the offset by partition."""
    topic = plan.sources[source].topic
    ends = {p: cluster.end(TopicPartition(topic, p)) for p in range(cluster.partitions(topic))}
    _write(cluster, plan, _END + source, ends)
    return ends


def deploy(cluster: Cluster, plan: Plan) -> str:
    """Write the plan if none is deployed under its network's name; return the deployment's id.

    Local state is that of one deployment: if the cluster is made anew, so is the state.

    Raises:
        PlanMismatchError: If another one is.
    """
    found = read_plan(cluster, plan.network)
    if found is None:
        wanted = {"version": 1, "first_epoch": 0, "deployment": uuid4().hex[:12]}
        _write(cluster, plan, PLAN_KEY, wanted | {"plan": plan.describe()})
        found = read_plan(cluster, plan.network) or wanted
    elif found["plan"] != json.loads(json.dumps(plan.describe())):
        changed = ", ".join(_differences(found["plan"], plan.describe()))
        raise PlanMismatchError(
            f"network {plan.network!r} is deployed with another plan ({changed} differ); run the "
            "network as deployed, or give the changed one another name"
        )
    return str(found["deployment"])


def read_plan(cluster: Cluster, network: str) -> dict[str, Any] | None:
    """Return the deployed plan as plain data; None if there is none."""
    place = TopicPartition(names.plan_topic(network), 0)
    reader, found = cluster.reader({place: 0}), None
    try:
        for records in catch_up(cluster, reader, place):
            for key, value in zip(records.keys, records.values, strict=True):
                if key == PLAN_KEY.encode() and value is not None:
                    found = json.loads(value)
    finally:
        reader.close()
    return found


def topic_specs(
    plan: Plan, *, compaction_lag_ms: int, existing: Collection[str] = ()
) -> list[TopicSpec]:
    """Return the topics that a network needs, with their settings (DESIGN 3).

    Args:
        plan: The plan, placed.
        compaction_lag_ms: How long superseded records stay in connection points.
        existing: Topics of sinks that are there, and are taken as they are.
    """
    net = plan.network
    specs = [
        TopicSpec(names.progress_topic(net), 1, settings.compacted()),
        TopicSpec(names.plan_topic(net), 1, settings.compacted()),
        TopicSpec(names.dead_letters_topic(net), 1, settings.dead_letters()),
        TopicSpec(names.SCHEMAS_TOPIC, 1, settings.compacted()),
    ]
    for arc in plan.topics:
        config = settings.passing()
        if arc in plan.kept_ms:
            lateness = max(plan.sources[source].lateness_ms for source in plan.sources_of[arc])
            config = settings.connection_point(
                retention_ms=plan.kept_ms[arc] + plan.radius_ms(arc) + lateness,
                compaction_lag_ms=compaction_lag_ms,
            )
        specs.append(TopicSpec(plan.topic(arc), plan.partition_count(arc), config))
    for sink in plan.sinks:
        if sink.topic not in existing:
            config = settings.upserts() if sink.envelope == "upsert" else {}
            specs.append(TopicSpec(sink.topic, plan.sink_partitions[sink.topic], config))
    for arc in plan.asked():
        count = plan.partition_count(arc)
        specs.append(TopicSpec(names.requests_topic(net, arc), count, settings.short()))
    for scope in plan.scopes.values():
        count = len(plan.tasks(scope.name))
        specs.append(TopicSpec(names.replay_topic(net, scope.name), count, settings.short()))
    return specs


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    plain = json.loads(json.dumps(other))
    return sorted(key for key in one.keys() | plain.keys() if one.get(key) != plain.get(key))


def _write(cluster: Cluster, plan: Plan, key: str, content: Any) -> None:
    topic = names.plan_topic(plan.network)
    value = json.dumps(content, sort_keys=True).encode()
    cluster.send(topic, partition=0, key=key.encode(), value=value)
