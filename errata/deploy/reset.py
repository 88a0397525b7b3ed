"""Removal of a network: what of it exists on a cluster and on this machine, and its deletion.

Topics of sources are never deleted; topics of sinks only on request.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from errata.processors.compile.compiler import compile_network
from errata.processors.declare.declarations import Source
from errata.processors.declare.faults import NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import read_by
from errata.processors.plan.deployed import Deployed, read_plan
from errata.processors.plan.topology import ingest_scope
from errata.settings.place import Place
from errata.topics import names
from errata.topics.admin import delete_topics, present_topics
from errata.topics.cluster import Cluster, TopicPartition
from errata.topics.groups import delete_groups, group_members

SEEN_MS = 10_000
"""A process that has reported within this time counts as running."""


@dataclass(frozen=True)
class Remains:
    """What exists of a network.

    Args:
        network: Its name.
        topics: Its topics; the plan topic is the last, since it says what the others are.
        groups: Its consumer groups.
        folder: Local state on this machine; None if there is none.
        running: Signs that processes of it still run.
    """

    network: str
    topics: list[str]
    groups: list[str]
    folder: Path | None
    running: list[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing exists any more."""
        return not (self.topics or self.groups or self.folder)


def remains(network: Network, place: Place, cluster: Cluster, *, sinks: bool = False) -> Remains:
    """Return what exists of a network.

    Args:
        network: The network as it is declared now.
        place: The settings of its cluster and state folder.
        cluster: The cluster of `place`.
        sinks: Whether to include the topics of its sinks.

    Raises:
        ClusterError: If the cluster can't be used.
    """
    existing = present_topics(place.kafka)
    plan_topic = names.plan_topic(network.name)
    deployed = read_plan(cluster, network.name) if plan_topic in existing else None
    arcs, scopes, sink_topics, sources = _known(network, deployed)
    start = re.escape(network.name)
    topic = re.compile(
        rf"{start}\.({names.PROGRESS}|{names.DEAD_LETTERS}|({_any(arcs)})(\.exchange|\.requests)?"
        rf"(\.v\d+)?|({_any(scopes)})\.replay(\.v\d+)?)"
    )
    topics = [t for t in existing if topic.fullmatch(t) and t not in sources | sink_topics]
    topics += [t for t in existing if sinks and t in sink_topics]
    group = re.compile(rf"{start}\.(({_any(scopes)})(\.driver|\.\d+)?|{names.DEAD_LETTERS})")
    members = group_members(place.kafka, prefix=f"{network.name}.")
    groups = {name: count for name, count in members.items() if group.fullmatch(name)}
    running = [f"group {name!r} has {count} members" for name, count in groups.items() if count]
    if _has_recent_record(cluster, names.progress_topic(network.name), existing):
        running.append(f"a task has reported in the last {SEEN_MS // 1000} s")
    folder = place.state / network.name
    if _is_in_use(folder):
        running.append(f"a process holds an index in {folder}")
    return Remains(
        network.name,
        [*sorted(topics), *([plan_topic] if plan_topic in existing else [])],
        sorted(groups),
        folder if folder.is_dir() else None,
        running,
    )


def delete_remains(existing: Remains, place: Place) -> Iterator[str]:
    """Delete what exists of a network, and yield a line for each step; the plan topic goes last.

    An interrupted removal can be repeated.

    Raises:
        ClusterError: If the cluster refuses.
    """
    delete_groups(place.kafka, existing.groups)
    yield f"{len(existing.groups)} consumer groups are deleted"
    delete_topics(
        place.kafka, [t for t in existing.topics if t != names.plan_topic(existing.network)]
    )
    delete_topics(place.kafka, existing.topics)
    yield f"{len(existing.topics)} topics are deleted"
    if existing.folder is not None:
        shutil.rmtree(existing.folder)
        yield f"{existing.folder} is deleted"


def _known(
    network: Network, deployed: Deployed | None
) -> tuple[set[str], set[str], set[str], set[str]]:
    """Return names of arcs and scopes, and topics of sinks and sources, deployed and declared."""
    descriptions = [deployed.description] if deployed is not None else []
    with suppress(NetworkError):  # the declared network may not compile; the deployed one did
        descriptions.append(compile_network(network).describe())
    arcs, scopes, sinks, sources = set[str](), set[str](), set[str](), set[str]()
    for plan in descriptions:
        arcs |= {read_by(name) for name in (*plan["arcs"], *plan["boxes"])}
        scopes |= {*plan["scopes"], *(ingest_scope(source) for source in plan["sources"])}
        sinks |= {sink["topic"] for sink in plan["sinks"]}
        sources |= {source["topic"] for source in plan["sources"].values()}
    declared = network.declarations.values()
    sources |= {declaration.topic for declaration in declared if isinstance(declaration, Source)}
    return arcs, scopes, sinks | {sink.topic for sink in network.sinks}, sources


def _is_in_use(folder: Path) -> bool:
    """Return whether a process of this machine has an index open: idle tasks do not report."""
    for lock in folder.rglob("LOCK"):
        with suppress(FileNotFoundError), lock.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return True
    return False


def _any(parts: set[str]) -> str:
    return "|".join(map(re.escape, sorted(parts))) or "(?!)"


def _has_recent_record(cluster: Cluster, topic: str, existing: dict[str, int]) -> bool:
    """Return whether a record was written to a topic in the last `SEEN_MS`."""
    if topic not in existing:
        return False
    place, now_ms = TopicPartition(topic, 0), time.time_ns() // 1_000_000
    return cluster.offset_at(place, now_ms - SEEN_MS) < cluster.end(place)
