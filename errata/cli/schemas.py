"""`errata schemas`: checks a network's schemas against the schema registry."""

from __future__ import annotations

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, group
from errata.cli.output import for_people, print_lines, print_table
from errata.deploy.next_plan import coming
from errata.processors.tasks import subjects
from errata.settings.loading import load
from errata.settings.settings import read_settings
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import INCOMPATIBLE
from errata.topics.registry_server import registry

_group = group(
    "schemas",
    about="Schemas of a network's topics, in the schema registry or in the topic _errata_schemas.",
    has_default=False,
)


@command("check", of=_group, example="errata schemas check tape.py --json")
def check(net: NetworkArgument, as_json: JsonOption = False) -> None:
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
        plan = coming(load(net), cluster, schemas).plan
        found = subjects.judged(plan, schemas)
    finally:
        cluster.close()
    bad = [verdict for verdict in found if verdict.kind == INCOMPATIBLE]
    if as_json or not for_people():
        print_lines(vars(verdict) for verdict in found)
    else:
        print_table(
            f"schemas of {plan.network}, version {plan.version}",
            ["subject", "", "level", "reason"],
            (
                (
                    v.subject,
                    v.kind.upper() if v in bad else v.kind,
                    v.level,
                    "; ".join(v.reasons),
                )
                for v in found
            ),
        )
    if bad:
        raise typer.Exit(1)
