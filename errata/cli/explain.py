"""`errata explain`: shows the plan of a network, and the reasons for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, deployed
from errata.cli.output import print_lines, print_table
from errata.client.texts import as_duration
from errata.observe.advice import bytes_read
from errata.observe.costs import Load, reached
from errata.processors.boxes.bounds import Bound
from errata.processors.boxes.modes import ADAPTIVE, DOWNSTREAM, UPSTREAM
from errata.processors.compile.compiler import compile_network
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import owner_of
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import topic_specs
from errata.processors.plan.topology import Scope, Source, ingest_scope
from errata.processors.windows.time_windows import FOREVER_MS
from errata.render.figures import number
from errata.render.graph import Graph, mermaid, svg
from errata.settings.loading import load
from errata.settings.place import DAY_MS
from errata.spark_jobs.steps import steps_of

NO_BOUND = "none"


class Picture(StrEnum):
    """What a network may be drawn as."""

    mermaid = "mermaid"
    svg = "svg"


@command("explain", example="errata explain tape.py --graph svg > tape.svg")
def explain(
    net: NetworkArgument,
    as_json: JsonOption = False,
    graph: Annotated[
        Picture | None, typer.Option(help="Print the network drawn as a graph instead.")
    ] = None,
    running: Annotated[
        bool, typer.Option(help="Also what a correction costs, by what the running network counts.")
    ] = False,
) -> None:
    """Show the plan of a network and the reasons for it; needs no cluster.

    For every box: its scope. For an aggregate or a lag: its mode, which other modes are illegal and
    why, the connection point that it replays (anchor), how much event time that takes (radius), and
    what a correction costs in each mode. Below a box with significance=: how far results may be
    off.
    For every source: its partitioning. Then the topics. JSON also has the order in which a scope
    runs its boxes.

    With --running: what the correction of a tuple costs each box either way, as the tuples tell
    that the running network has counted.
    """
    network = load(net)
    explained = explanation(network)
    if running:
        from errata.cli.advise import running_load

        with deployed(net) as deployment:
            explained["costs"] = _costs(deployment.plan, running_load(deployment))
    if graph is not None:
        drawn = Graph.of(compile_network(network), costs=_costs_in_words(explained))
        typer.echo({Picture.mermaid: mermaid, Picture.svg: svg}[graph](drawn), nl=False)
        return
    if as_json:
        print_lines([explained])
    else:
        _print(explained)


def explanation(network: Network) -> dict[str, Any]:
    """Return what `errata explain --json` prints; times are in ms, null if there is none.

    Raises:
        NetworkError: If the network can't run.
    """
    plan = compile_network(network)
    return {
        "network": plan.network,
        "sources": {name: _source(network, plan, name) for name in plan.topology.sources},
        "boxes": {name: _box(plan, name) for name in plan.boxes},
        "scopes": {
            scope.name: {
                "boxes": scope.boxes,
                "inputs": scope.inputs,
                "outputs": scope.outputs,
                "order": scope.order,
                **({"stages": _stages(plan, scope)} if scope.on_spark else {}),
            }
            for scope in plan.topology.scopes.values()
        },
        "sweepers": plan.replayed_points(),
        "topics": _topics(plan),
    }


def _stages(plan: CompiledPlan, scope: Scope) -> list[dict[str, Any]]:
    """Return the stages of a job on Spark: what runs where the inputs are read, and then."""
    steps = steps_of(plan, scope, writers=0)
    return [
        {
            "boxes": [box.arc.name for box in step.boxes],
            "inputs": step.inputs,
            "stage": step.level,
            "divided_by": "group" if step.is_grouped else "partition",
        }
        for step in sorted(steps, key=lambda step: step.level)
        if step.boxes
    ]


def _source(network: Network, plan: CompiledPlan, name: str) -> dict[str, Any]:
    source, declaration = plan.topology.sources[name], network.declarations[name]
    assert isinstance(declaration, declared.Source)
    arc = source.arc
    return {
        "topic": source.topic,
        "envelope": source.envelope,
        "format": source.format,
        "fields": {field: str(kind) for field, kind in arc.fields.items()},
        "identity": arc.identity,
        "rekey": source.rekey,
        "event_time": arc.event_time,
        "partition_by": arc.partition_by,
        "partition_by_from": _partitioning_reason(network, plan, declaration),
        "partitions": source.partitions,
        "lateness_ms": source.lateness_ms,
        "idle_after_ms": source.idle_after_ms,
        "max_ahead_ms": source.max_ahead_ms,
        "keep_ms": plan.kept_ms.get(name),
        "radius_ms": plan.radius_ms(name),
        **({"place": "spark", "stages": [_stage_of(source)]} if source.on_spark else {}),
    }


def _stage_of(source: Source) -> dict[str, Any]:
    """Return the stage of the job that ingests a source."""
    return {
        "boxes": [source.arc.name],
        "inputs": [source.topic],
        "stage": 1,
        "divided_by": "identity",
    }


def _partitioning_reason(network: Network, plan: CompiledPlan, source: declared.Source) -> str:
    if source.partition_by is not None:
        return "declared"
    grouping = [
        name
        for name, box in network.declarations.items()
        if source.name in plan.topology.sources_of[name]
        and any(box.grouped_by(arc) is not None for arc in box.reads)
    ]
    if not grouping:
        return "the identity, since no aggregate, lag or lookup is downstream"
    if not plan.topology.arcs[source.name].partition_by:
        return f"{', '.join(grouping)} have no common group field: one partition does all the work"
    if plan.requested:
        others = ", ".join(dict.fromkeys(map(owner_of, plan.requested)))
        return f"groups of {grouping[0]}; {others} repartitions"
    return f"the groups that {', '.join(grouping)} share"


def _kind(plan: CompiledPlan, name: str) -> str:
    if plan.topology.arcs[name].exchange:
        return "exchange"
    return plan.boxes[name].kind


def _box(plan: CompiledPlan, name: str) -> dict[str, Any]:
    box = plan.boxes[name]
    row: dict[str, Any] = {
        "kind": _kind(plan, name),
        "scope": plan.topology.scope_of(name),
        "input": ", ".join(box.inputs),
        "does": box.describe(),
        "fields": {
            field: str(plan.topology.arcs[name].fields[field])
            for field in plan.topology.arcs[name].visible
        },
        "topic": plan.deployment.topic(name) if name in plan.topology.topics else None,
        "keep_ms": plan.kept_ms.get(name),
    }
    if name in plan.topology.spark:
        row["place"] = "spark"
    if not plan.bounds[name].is_exact:
        row["within"] = _within(plan, name)
    if name not in plan.paths:
        return row
    path = plan.paths[name]
    anchors = [anchor.arc.name for anchor in path.anchors]
    row |= {
        "anchor": ", ".join(anchors),
        "pushed_down": {anchor.arc.name: tuple(anchor.pushed) for anchor in path.anchors},
        "radius_ms": max(path.radius_ms(anchor) for anchor in anchors),
    }
    if name not in plan.choices:
        return row
    choice, cost = plan.choices[name], box.cost
    replayed = " and ".join(map(repr, anchors))
    legal = {UPSTREAM: f"replays {replayed}", DOWNSTREAM: f"results are kept on {choice.stored!r}"}
    if cost is not None:
        between_ms = max(anchor.extent_ms for anchor in path.anchors)
        replayed_ms = min(cost.replayed_ms + between_ms, FOREVER_MS)
        row["cost"] = {"replayed_ms": replayed_ms, "results": cost.results}
    if name in plan.topology.spark and box.is_grouped_on_spark:
        row["horizon_ms"] = plan.topology.spark[name]
    return row | {
        "mode": choice.mode,
        "asked": choice.requested,
        "chooses": choice.chooses,
        "reason": choice.reason,
        "modes": {
            mode: {"legal": mode not in choice.illegal, "why": choice.illegal.get(mode, why)}
            for mode, why in legal.items()
        },
        "results": choice.results,
    }


def _costs(plan: CompiledPlan, load: Load) -> list[dict[str, Any]]:
    """Return what a correction of each source costs each box that it reaches."""
    return [
        {
            "source": source,
            "box": name,
            "revisions": reach.revisions,
            "tuples_replayed": None if ways is None else ways.replayed.tuples,
            "results_fetched": None if ways is None else ways.fetched.results,
            "bytes_replayed": None if ways is None else bytes_read(plan, name, ways.replayed),
            "bytes_fetched": None if ways is None else bytes_read(plan, name, ways.fetched),
        }
        for source in plan.topology.sources
        for name, reach, ways in reached(plan, load, source)
    ]


def _within(plan: CompiledPlan, name: str) -> dict[str, str]:
    """Return by field how far it may be from its exact value, in words."""
    arc, bounds = plan.topology.arcs[name], plan.bounds[name]
    if bounds.why:
        return dict.fromkeys(arc.visible, f"{NO_BOUND}: {bounds.why}")
    times = {field for field, kind in arc.fields.items() if kind.kind.startswith("timestamp")}
    return {
        field: NO_BOUND if bound is None else _bound_in_words(bound, is_time=field in times)
        for field, bound in bounds.fields.items()
    }


def _bound_in_words(bound: Bound, *, is_time: bool) -> str:
    parts = [f"{float(bound.share * 100):g}%"] if bound.share else []
    if bound.absolute or not parts:
        plain = f"{float(bound.absolute):g}"
        parts.append((as_duration(int(bound.absolute)) or plain) if is_time else plain)
    condition = ", if all values have the same sign" if bound.one_sign else ""
    return " + ".join(parts) + condition


def _topics(plan: CompiledPlan) -> list[dict[str, Any]]:
    # A topic's partitions follow a user's topic if they differ between two placements of the plan.
    one, two = (
        topic_specs(
            plan.placed(dict.fromkeys(plan.topology.sources, count)), compaction_lag_ms=DAY_MS
        )
        for count in (1, 2)
    )
    return [
        {
            "topic": spec.name,
            "partitions": spec.partitions if spec.partitions == other.partitions else None,
            "cleanup": spec.config.get("cleanup.policy"),  # None: the broker's default
        }
        for spec, other in zip(one, two, strict=True)
    ]


# -------------------------------------------------------------------------------- for people


def _mode(box: dict[str, Any]) -> str | None:
    return ADAPTIVE if box.get("chooses") else box.get("mode")


def _cost(box: dict[str, Any]) -> list[str]:
    """Return what a revision costs by replaying and by fetching, in words."""
    replayed_ms, results = box["cost"]["replayed_ms"], box["cost"]["results"]
    replayed = "all" if replayed_ms >= FOREVER_MS else as_duration(replayed_ms)
    known = "any number of results" if results is None else f"{results} result{'s'[: results > 1]}"
    return [f"{replayed} of its group replayed", f"{known} fetched"]


def _costs_in_words(explained: dict[str, Any]) -> dict[str, str]:
    """Return by box what a correction costs it, by its structure or as counted, in its mode."""
    costs = {name: _cost(box) for name, box in explained["boxes"].items() if "cost" in box}
    for row in explained.get("costs", ()):
        if row["tuples_replayed"] is not None:
            tuples, results = number(row["tuples_replayed"]), number(row["results_fetched"])
            costs[row["box"]] = [f"{tuples} tuples replayed", f"{results} results fetched"]
    found = {}
    for name, ways in costs.items():
        box = explained["boxes"][name]
        taken = box["mode"] == UPSTREAM or box["chooses"], box["results"] is not None
        found[name] = " or ".join(
            way for way, is_taken in zip(ways, taken, strict=True) if is_taken
        )
    return found


def _counted(row: dict[str, Any]) -> list[str | None]:
    """Return what a correction costs by replaying and by fetching, by counts, in words."""
    if row["tuples_replayed"] is None:
        return [None, None]
    return [
        f"{number(row['tuples_replayed'])} tuples, {number(row['bytes_replayed'])} bytes",
        f"{number(row['results_fetched'])} results, {number(row['bytes_fetched'])} bytes",
    ]


def _legality(mode: dict[str, Any]) -> str:
    return f"{'yes' if mode['legal'] else 'no'}: {mode['why']}"


def _in_words(does: dict[str, Any]) -> str:
    """Return the definition of a box in words."""

    def plain(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name} = {each}" for name, each in value.items())
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    return "; ".join(f"{what} {plain(value)}" for what, value in does.items() if what != "inputs")


def _print(explained: dict[str, Any]) -> None:
    typer.echo(f"network {explained['network']}\n")
    print_table(
        "sources",
        ["source", "topic", "partitioned by", "which is", "lateness", "idle after", "keep"],
        (
            (
                name,
                source["topic"],
                ", ".join(source["partition_by"]),
                source["partition_by_from"],
                as_duration(source["lateness_ms"]),
                as_duration(source["idle_after_ms"]),
                as_duration(source["keep_ms"]),
            )
            for name, source in explained["sources"].items()
        ),
    )
    print_table(
        "boxes",
        ["box", "kind", "input", "scope", "mode", "anchor", "radius", "keep"],
        (
            (
                name,
                box["kind"] + (", on Spark" if "place" in box else ""),
                box["input"],
                box["scope"],
                _mode(box),
                box.get("anchor"),
                as_duration(box.get("radius_ms")),
                as_duration(box["keep_ms"]),
            )
            for name, box in explained["boxes"].items()
        ),
    )
    ingests = {ingest_scope(name): each for name, each in explained["sources"].items()}
    found = ingests | explained["scopes"]
    jobs = {name: each["stages"] for name, each in found.items() if "stages" in each}
    if jobs:
        print_table(
            "jobs on Spark",
            ["job", "stage", "boxes", "reads", "divided by"],
            (
                (
                    name,
                    step["stage"] or "reads",
                    ", ".join(step["boxes"]),
                    ", ".join(step["inputs"]),
                    step["divided_by"],
                )
                for name, steps in jobs.items()
                for step in steps
            ),
        )
    loops = {
        name: box["does"] for name, box in explained["boxes"].items() if box["kind"] == "iterate"
    }
    if loops:
        print_table(
            "loops",
            ["loop", "starts with", "rounds", "box", "does"],
            (
                (name, does["iterate"], does["rounds"], box, _in_words(inside))
                for name, does in loops.items()
                for box, inside in does["body"].items()
            ),
        )
    aggregates = {name: box for name, box in explained["boxes"].items() if "mode" in box}
    if aggregates:
        print_table(
            "modes",
            ["box", "mode", "why", *(f"{mode} legal?" for mode in (UPSTREAM, DOWNSTREAM))],
            (
                (name, _mode(box), box["reason"], *map(_legality, box["modes"].values()))
                for name, box in aggregates.items()
            ),
        )
        print_table(
            "what the correction of one tuple costs, at most, once its windows have closed",
            ["box", UPSTREAM, DOWNSTREAM],
            ((name, *_cost(box)) for name, box in aggregates.items() if "cost" in box),
        )
    if "costs" in explained:
        print_table(
            "what the correction of one tuple costs, by the tuples that were counted",
            ["source", "box", "revisions", UPSTREAM, DOWNSTREAM],
            (
                (
                    row["source"],
                    row["box"],
                    number(row["revisions"]),
                    *_counted(row),
                )
                for row in explained["costs"]
            ),
        )
    inexact = {name: box["within"] for name, box in explained["boxes"].items() if "within" in box}
    if inexact:
        print_table(
            "how far results may be from exact ones, as a share of what was emitted, or absolute",
            ["box", "field", "within"],
            ((name, field, text) for name, own in inexact.items() for field, text in own.items()),
        )
    print_table(
        "topics",
        ["topic", "cleanup", "partitions"],
        (
            (
                topic["topic"],
                topic["cleanup"] or "as the broker",
                topic["partitions"] or "as the source's topic",
            )
            for topic in explained["topics"]
        ),
    )
