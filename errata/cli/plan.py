"""What a deployment would do: `errata plan` shows all of it, `errata schemas check` the schemas."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from errata.cli.app import JsonOption, NetworkArgument, TextOption, command, group
from errata.cli.output import print_lines, print_table, wants_text
from errata.deploy.preview import Preview, preview
from errata.deploy.versions import plan_next
from errata.processors.tasks import subjects
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from errata.settings.place import read_settings
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import INCOMPATIBLE, SAME
from errata.topics.registry_server import registry


class NotDeployableError(ErrataError):
    """A deployment would be refused."""


@command("plan", example="errata plan tape.py --check")
def plan(
    net: NetworkArgument,
    check: Annotated[
        bool, typer.Option("--check", help="Status 1 if deploying would create or change anything.")
    ] = False,
    as_json: JsonOption = False,
    as_text: TextOption = False,
) -> None:
    """Show what `errata deploy` would create and change on the cluster; changes nothing.

    Shows topics to create, topics that exist with other settings, schemas, the version of the plan
    and its changes, users' topics, and the processes to run. Status 1 if the deployment would be
    refused.
    """
    network, place = load(net), read_settings()
    cluster = KafkaCluster(place.kafka)
    try:
        planned = preview(network, place, cluster, registry(cluster, place.registry))
    finally:
        cluster.close()
    if not wants_text(as_json, as_text):
        print_lines([as_data(planned)])
    else:
        show(planned)
    if planned.refused:
        raise NotDeployableError(f"`errata deploy {net}` would be refused: {planned.refused}")
    if check and planned.does_something:
        raise typer.Exit(1)


def as_data(planned: Preview) -> dict[str, Any]:
    """Return a preview as plain data."""
    return {
        "network": planned.network,
        "deployed": planned.deployed,
        "version": planned.version,
        "does_something": planned.does_something,
        "refused": planned.refused or None,
        "user_topics": [vars(user) for user in planned.users],
        "create": [
            {"topic": s.name, "partitions": s.partitions, "settings": dict(s.config)}
            for s in planned.create
        ],
        "differ": [vars(difference) for difference in planned.differ],
        "risks": [*planned.risks],
        "schemas": planned.schemas or {},
        "changes": [vars(change) for change in planned.changes],
        "scopes": [*planned.scopes],
        "sweepers": [*planned.sweepers],
        "jobs": [*planned.jobs],
    }


def show(planned: Preview) -> None:
    """Print a preview as tables; empty tables are left out."""
    users = [(u.kind, u.topic, u.partitions or "missing") for u in planned.users]
    _table("users' topics", ["", "topic", "partitions"], users)
    created = [(s.name, s.partitions, _settings(dict(s.config))) for s in planned.create]
    _table("topics to create", ["topic", "partitions", "settings"], created)
    differ = [(d.topic, d.key, d.found, d.wanted, d.remedy or "may stay") for d in planned.differ]
    _table("topics that differ", ["topic", "setting", "found", "wanted", "remedy"], differ)
    risks = [tuple(risk.split(": ", 1)) for risk in planned.risks]
    _table("how records may be lost", ["topics", "why, and what to do"], risks)
    schemas = [(s, kind) for s, kind in (planned.schemas or {}).items() if kind != SAME]
    _table("schemas to register", ["subject", ""], schemas)
    changes = [(c.kind, c.name, c.before, c.after) for c in planned.changes]
    _table("what changes in the plan", ["", "name", "before", "after"], changes)
    runs = [("errata run", planned.scopes), ("errata sweep", planned.sweepers)]
    runs.append(("errata spark", planned.jobs))
    _table("what has to run", ["by", ""], [(by, ", ".join(what)) for by, what in runs if what])
    Console().print(_summary(planned), markup=False, highlight=False)


def _table(title: str, columns: list[str], rows: list[Any]) -> None:
    if rows:
        print_table(title, columns, rows)


def _settings(config: dict[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in config.items())


def _summary(planned: Preview) -> str:
    if planned.refused:
        return f"{planned.network}: can't be deployed like this"
    if not planned.does_something:
        return f"{planned.network}: version {planned.deployed} is deployed; nothing to do"
    relation = "is the first"
    if planned.deployed is not None:
        relation = f"follows {planned.deployed}" if planned.moves else "stays"
    count = len(planned.create)
    return f"{planned.network}: version {planned.version} {relation}; {count} topics to create"


_group = group(
    "schemas",
    about="Schemas of a network's topics, in the schema registry or in the topic _errata_schemas.",
    has_default=False,
)


@command("check", of=_group, example="errata schemas check tape.py --json")
def check(net: NetworkArgument, as_json: JsonOption = False, as_text: TextOption = False) -> None:
    """Compare the schemas that a deploy would register with those that the registry has.

    For each subject: new (there is no schema yet), same (the registry has this schema), compatible
    (it would become the latest), or INCOMPATIBLE by the subject's compatibility level, with the
    reason. Then the exit status is 1, and `errata deploy` would refuse. Nothing is created or
    registered.
    """
    place = read_settings()
    cluster = KafkaCluster(place.kafka)
    try:
        schemas = registry(cluster, place.registry)
        plan = plan_next(load(net), cluster, schemas).plan
        verdicts = subjects.verdicts(plan, schemas)
    finally:
        cluster.close()
    bad = [verdict for verdict in verdicts if verdict.kind == INCOMPATIBLE]
    if not wants_text(as_json, as_text):
        print_lines(vars(verdict) for verdict in verdicts)
    else:
        print_table(
            f"schemas of {plan.network}, version {plan.deployment.version}",
            ["subject", "", "level", "reason"],
            (
                (
                    v.subject,
                    v.kind.upper() if v in bad else v.kind,
                    v.level,
                    "; ".join(v.reasons),
                )
                for v in verdicts
            ),
        )
    if bad:
        raise typer.Exit(1)
