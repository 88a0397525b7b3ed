"""`errata acls`: the rights that each role of a network needs on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, deployed
from errata.cli.output import print_lines
from errata.deploy.rights import roles
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.settings.loading import load
from errata.topics.refused import Right, by_resource, kafka_acls


@command("acls", example="errata acls tape.py --principal ingest.trades=User:ann")
def acls(
    net: NetworkArgument,
    role: Annotated[list[str] | None, typer.Option(help="Only this role. May be repeated.")] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=PRINCIPAL", help="The principal that has a role. May be repeated."
        ),
    ] = None,
    principal_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Prefix of the user names of roles without --principal; NETWORK. by default.",
        ),
    ] = None,
    as_deployed: Annotated[
        bool,
        typer.Option(
            "--deployed", help="Rights for the deployed plan; later versions have other topics."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the rights that each role needs on the cluster, as command lines of kafka-acls.sh.

    The deployer creates topics, registers schemas and writes the plan. Scopes, sweepers of
    connection points, readers and operators need fewer rights. Only the undeployer deletes topics;
    scopes delete old records. Needs no cluster, except with --deployed. A process with
    --sweep-beside, as `errata up` starts them, needs both roles.

    JSON: a line for each role, with its rules as in Strimzi's KafkaUser.
    """
    if as_deployed:
        with deployed(net) as deployment:
            plan: CompiledPlan = deployment.plan
    else:
        plan = compile_network(load(net))
    known = roles(plan)
    principals = _principals_by_role(principal or [])
    for name in [*(role or []), *principals]:
        if name not in known:
            raise typer.BadParameter(f"no role {name!r}: the roles are {', '.join(known)}")
    prefix = f"{plan.network}." if principal_prefix is None else principal_prefix
    users = {name: principals.get(name, f"User:{prefix}{name}") for name in role or known}
    if as_json:
        print_lines([as_data(name, users[name], known[name]) for name in users])
        return
    _print(users, known)


def _print(users: Mapping[str, str], known: Mapping[str, list[Right]]) -> None:
    server = '--bootstrap-server "$KAFKA_BOOTSTRAP_SERVERS"'
    for name, user in users.items():
        typer.echo(f"# {name}")
        for line in kafka_acls(user, known[name]):
            tool, rest = line.split(" ", 1)
            typer.echo(f"{tool} {server} {rest}")


def as_data(role: str, principal: str, rights: list[Right]) -> dict[str, Any]:
    """Return the rights of a role as plain data."""
    return {
        "role": role,
        "principal": principal,
        "acls": [
            {
                "resource": {
                    "type": kind[0].lower() + kind[1:],
                    "name": name,
                    "patternType": "prefix" if is_prefix else "literal",
                },
                "operations": operations,
            }
            for (kind, name, is_prefix), operations in by_resource(rights).items()
        ],
    }


def _principals_by_role(pairs: list[str]) -> dict[str, str]:
    principals = {}
    for pair in pairs:
        role, equals, user = pair.partition("=")
        if not equals or not user:
            raise typer.BadParameter(f"{pair!r} needs the form ROLE=PRINCIPAL")
        principals[role] = user if ":" in user else f"User:{user}"
    return principals
