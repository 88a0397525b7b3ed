"""`errata render`: writes a network as files for Kubernetes, Strimzi or compose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from errata.cli.app import NetworkArgument, command
from errata.deploy import bound_sources
from errata.deploy.versions import plan_next
from errata.processors.compile.compiler import compile_network
from errata.processors.compile.registry_fields import resolve
from errata.processors.declare.declarations import Source
from errata.processors.declare.network import Network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import topic_specs
from errata.render.compose import compose_file
from errata.render.containers import code_of, labels, roles
from errata.render.kubernetes import Parameters, manifests, topic_resources
from errata.render.yaml import to_yaml
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from errata.settings.place import DAY_MS, read_settings
from errata.topics.kafka import KafkaCluster
from errata.topics.registry_server import registry
from errata.topics.settings import TopicSpec

_MARK = "# Made by `errata render"


class What(StrEnum):
    """The kinds of files."""

    K8S = "k8s"
    TOPICS = "topics"
    COMPOSE = "compose"


_FILES = {
    What.K8S: "k8s.yaml",
    What.TOPICS: "topics.yaml",
    What.COMPOSE: "docker-compose.yml",
}


class ForeignFileError(ErrataError):
    """A file to be written exists, and `errata render` did not write it."""


@command("render", example="errata render k8s tape.py --image registry/tape:1 -o deploy")
def render(
    what: Annotated[What, typer.Argument(metavar="k8s|topics|compose", help="What to write.")],
    net: NetworkArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Write a file to this folder; else print it."
        ),
    ] = None,
    image: Annotated[
        str, typer.Option(help="The image of all processes: Errata's, or one built from it.")
    ] = "errata:dev",
    replicas: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SCOPE=]N",
            help="Processes that share each scope, or this one; may be repeated. One by default.",
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs; its driver's container by default.")
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="ConfigMap with settings as variables; NET-settings by default."
        ),
    ] = None,
    secrets: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Secret with the settings that are secret; NET-secrets by default."
        ),
    ] = None,
    disk: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of the volume of a sweeper or of Spark.")
    ] = "10Gi",
    kafka: Annotated[
        str, typer.Option(metavar="NAME", help="Strimzi's name of the Kafka cluster.")
    ] = "kafka",
    copies: Annotated[
        int | None,
        typer.Option(min=1, help="Replication factor of topics; the broker's by default."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=N",
            help="Partitions of a source's topic, to render a first version without a cluster.",
        ),
    ] = None,
) -> None:
    """Print the manifests that run a network on Kubernetes or compose, or its topics for Strimzi.

    `k8s`: a Deployment for each scope, a StatefulSet for each sweeper and one for Spark, and a Job
    that deploys. `compose`: the same as services. `topics`: every topic that the network needs, for
    a cluster on which only Strimzi creates topics; `errata deploy` then uses them. The network's
    file is included; a network in a module has to be in the image.
    """
    network = load(net)
    documents: Sequence[dict[str, Any]]
    if what is What.TOPICS:
        specs = _specs(network, _counts(source, "--source"))
        documents = [*topic_resources(specs, cluster=kafka, copies=copies)]
    else:
        code = code_of(net)
        plan = _plan(network)
        processes = roles(
            plan, code.reference, replicas=_counts(replicas, "--replicas", least=0), master=master
        )
        documents = [compose_file(processes, code=code, image=image, folder=output or Path())]
        if what is What.K8S:
            label = labels([network.name])[network.name]
            settings_name = settings or f"{label}-settings"
            secrets_name = secrets or f"{label}-secrets"
            wanted = Parameters(network.name, code, image, settings_name, secrets_name, disk)
            documents = [*manifests(wanted, processes)]
    header = f"{_MARK} {what} {net}`: change the network or the options, and render it again.\n"
    text = header + "---\n".join(map(to_yaml, documents))
    if output is None:
        typer.echo(text, nl=False)
        return
    output.mkdir(parents=True, exist_ok=True)
    _write(output / _FILES[what], text)


def _plan(network: Network) -> CompiledPlan:
    """Return a network's plan; asks a cluster only for what sources leave to a registry."""
    sources = [d for d in network.declarations.values() if isinstance(d, Source)]
    if all(source.is_complete for source in sources):
        return compile_network(network)
    place = read_settings()
    cluster = KafkaCluster(place.kafka)
    try:
        schemas = registry(cluster, place.registry)
        network = bound_sources.complete(network, schemas, cluster)
        return compile_network(resolve(network, schemas))
    finally:
        cluster.close()


def _specs(network: Network, counts: Mapping[str, int]) -> list[TopicSpec]:
    """Return the topics of a network: those of the deployed version, and of the next one.

    The deployed version's topics are needed until `errata deploy` has copied their content.
    """
    if counts:
        return topic_specs(_placed(_plan(network), counts), compaction_lag_ms=DAY_MS)
    place = read_settings()
    cluster = KafkaCluster(place.kafka)
    try:
        upgrade = plan_next(network, cluster, registry(cluster, place.registry))
    finally:
        cluster.close()
    plans = [plan for plan in (upgrade.old, upgrade.plan) if plan is not None]
    specs = [
        s for plan in plans for s in topic_specs(plan, compaction_lag_ms=place.compaction_lag_ms)
    ]
    return list({spec.name: spec for spec in specs}.values())


def _placed(plan: CompiledPlan, counts: Mapping[str, int]) -> CompiledPlan:
    sources = plan.topology.sources
    if counts.keys() != sources.keys():
        raise typer.BadParameter(
            f"needs the partitions of each of {', '.join(sources)}, found {', '.join(counts)}",
            param_hint="--source",
        )
    return plan.placed(dict(counts))


def _counts(pairs: Sequence[str] | None, option: str, *, least: int = 1) -> dict[str, int]:
    """Return counts by name; the name is "" for a count without one."""
    counts = {}
    for pair in pairs or ():
        name, _, count = pair.rpartition("=")
        if not count.isascii() or not count.isdigit() or int(count) < least:
            raise typer.BadParameter(
                f"{pair!r} needs a whole number, {least} at least", param_hint=option
            )
        counts[name] = int(count)
    return counts


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.read_bytes().startswith(_MARK.encode()):
        raise ForeignFileError(
            f"file {str(path)!r} exists, and `errata render` did not write it; move it, or "
            "name another folder"
        )
    path.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {path}", err=True)
