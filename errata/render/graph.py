"""A network drawn as a graph: as Mermaid text for documents, or as SVG.

Boxes lie to the right of what they read. Solid lines are arcs; a dashed one goes from a connection
point to each box that replays it, or fetches results from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from errata.processors.boxes.modes import ADAPTIVE, DOWNSTREAM
from errata.processors.plan.compiled import CompiledPlan

SOURCE, BOX, SINK = "source", "box", "sink"
SHAPES = {SOURCE: ('(["', '"])'), BOX: ('["', '"]'), SINK: ('[/"', '"/]')}
"""How Mermaid draws a kind of node."""
ARC, REPLAYED, FETCHED = "", "replays", "fetches"

CHARACTER, LINE, PADDING, GAP, MARGIN = 7.2, 16, 10, 70, 24
"""Sizes of the SVG, in pixels."""
STYLE = """
text { font: 12px sans-serif; fill: #1b1b1b } .of { fill: #5a5a5a }
rect { fill: #fff; stroke: #4a4a4a } .source { fill: #e7f0f7 } .sink { fill: #eaf4ea }
.kept { stroke-width: 2.5 } path { fill: none; stroke: #4a4a4a } .back { stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #eee } .of { fill: #bbb } rect { fill: #222; stroke: #bbb }
  .source { fill: #1d3040 } .sink { fill: #1e3320 } path { stroke: #bbb }
}
"""


@dataclass(frozen=True)
class Node:
    """A source, a box, or the topic of a sink.

    Args:
        name: Its name; unique.
        kind: ``source``, ``box`` or ``sink``.
        about: Lines of text below its name.
        scope: The scope that runs it; "" if none does.
        is_kept: Whether its arc is a connection point.
    """

    name: str
    kind: str
    about: tuple[str, ...]
    scope: str = ""
    is_kept: bool = False


@dataclass(frozen=True)
class Edge:
    """A line from one node to another.

    Args:
        start: Name of a node.
        end: Name of a node.
        what: "" for an arc, or what the box at its end does with a connection point.
    """

    start: str
    end: str
    what: str = ARC


@dataclass(frozen=True)
class Graph:
    """What is drawn: nodes, each after those that it reads, and the lines between them."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]

    @classmethod
    def of(cls, plan: CompiledPlan, *, costs: Mapping[str, str] | None = None) -> Graph:
        """Return the graph of a plan.

        Args:
            plan: The plan.
            costs: By box, what a correction costs it, in words.
        """
        return cls([*_nodes(plan, costs or {})], [*_edges(plan)])


def _nodes(plan: CompiledPlan, costs: Mapping[str, str]) -> Iterator[Node]:
    topology, kept = plan.topology, plan.kept_ms
    for name, source in topology.sources.items():
        about = [f"topic {source.topic}", *(["on Spark"] if source.on_spark else [])]
        yield Node(name, SOURCE, tuple(about), is_kept=name in kept)
    for name, box in plan.boxes.items():
        what = "exchange" if topology.arcs[name].exchange else box.kind
        if choice := plan.choices.get(name):
            what += f", {ADAPTIVE if choice.chooses else choice.mode}"
        more = ["on Spark"] if name in topology.spark else []
        if cost := costs.get(name):
            more.append(cost)
        yield Node(name, BOX, (what, *more), topology.scope_of(name), name in kept)
    for sink in topology.sinks:
        yield Node(f"topic {sink.topic}", SINK, (f"sink, {sink.envelope}",))


def _edges(plan: CompiledPlan) -> Iterator[Edge]:
    for name, box in plan.boxes.items():
        yield from (Edge(arc, name) for arc in box.inputs)
    for sink in plan.topology.sinks:
        yield Edge(sink.arc, f"topic {sink.topic}")
    for name, path in plan.paths.items():
        choice = plan.choices.get(name)
        if choice and choice.results:
            yield Edge(choice.results, name, FETCHED)
        if not choice or choice.chooses or choice.mode != DOWNSTREAM:
            yield from (Edge(anchor.arc.name, name, REPLAYED) for anchor in path.anchors)


def mermaid(graph: Graph) -> str:
    """Return a flowchart for Mermaid; a connection point has a thick border."""
    ids = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    scopes = dict.fromkeys(node.scope for node in graph.nodes)
    for number, scope in enumerate(scopes):
        if scope:
            lines.append(f'  subgraph s{number}["scope {scope}"]')
        for node in graph.nodes:
            if node.scope == scope:
                opens, closes = SHAPES[node.kind]
                text = "<br/>".join((node.name, *node.about))
                lines.append(f"    {ids[node.name]}{opens}{text}{closes}")
        if scope:
            lines.append("  end")
    for edge in graph.edges:
        arrow = f"-. {edge.what} .->" if edge.what else "-->"
        lines.append(f"  {ids[edge.start]} {arrow} {ids[edge.end]}")
    kept = ",".join(ids[node.name] for node in graph.nodes if node.is_kept)
    if kept:
        lines += ["  classDef kept stroke-width:3px", f"  class {kept} kept"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Place:
    """Where a node is drawn, in pixels: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float


def svg(graph: Graph) -> str:
    """Return a picture."""
    places = placed(graph)
    width = max((p.x + p.width for p in places.values()), default=0) + MARGIN
    height = max((p.y + p.height for p in places.values()), default=0) + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8"/></marker></defs>',
        *(_line(edge, places) for edge in graph.edges),
        *(part for node in graph.nodes for part in _box(node, places[node.name])),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def placed(graph: Graph) -> dict[str, Place]:
    """Return where each node is drawn: in columns by the longest way from a source."""
    reads: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for edge in graph.edges:
        if edge.what == ARC:
            reads[edge.end].append(edge.start)
    levels: dict[str, int] = {}
    for node in graph.nodes:
        levels[node.name] = max((levels[name] + 1 for name in reads[node.name]), default=0)
    places, left = dict[str, Place](), float(MARGIN)
    for level in range(max(levels.values(), default=-1) + 1):
        column = [node for node in graph.nodes if levels[node.name] == level]
        column.sort(key=lambda node: _middle(reads[node.name], places))
        width, top = max(map(_width, column)), float(MARGIN)
        for node in column:
            height = LINE * (1 + len(node.about)) + 2 * PADDING
            places[node.name] = Place(left, top, width, height)
            top += height + MARGIN
        left += width + GAP
    return places


def _middle(names: Iterable[str], places: Mapping[str, Place]) -> float:
    """Return the mean height of some nodes; 0 if there are none."""
    heights = [places[name].y for name in names]
    return sum(heights) / len(heights) if heights else 0.0


def _width(node: Node) -> float:
    return max(map(len, (node.name, *node.about))) * CHARACTER + 2 * PADDING


def _box(node: Node, place: Place) -> Iterator[str]:
    kept = " kept" if node.is_kept else ""
    title = f"scope {node.scope}" if node.scope else node.kind
    yield (
        f'<g><title>{escape(title)}</title><rect class="{node.kind}{kept}" x="{place.x:.0f}" '
        f'y="{place.y:.0f}" width="{place.width:.0f}" height="{place.height:.0f}" rx="4"/>'
    )
    for number, text in enumerate((node.name, *node.about)):
        y = place.y + PADDING + LINE * number + 12
        of = ' class="of"' if number else ""
        yield f'<text{of} x="{place.x + PADDING:.0f}" y="{y:.0f}">{escape(text)}</text>'
    yield "</g>"


def _line(edge: Edge, places: Mapping[str, Place]) -> str:
    one, other = places[edge.start], places[edge.end]
    if edge.what == ARC:
        x, y = one.x + one.width, one.y + one.height / 2
        to_x, to_y, bend = other.x, other.y + other.height / 2, GAP / 2
        curve = f"C{x + bend:.0f} {y:.0f} {to_x - bend:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"
        return f'<path marker-end="url(#end)" d="M{x:.0f} {y:.0f} {curve}"/>'
    x, y = one.x + one.width / 2, one.y + one.height
    to_x, to_y = other.x + other.width / 2, other.y + other.height
    if one == other:  # it fetches its own results
        x, to_x = x + 12, to_x - 12
    below = max(y, to_y) + MARGIN
    curve = f"C{x:.0f} {below:.0f} {to_x:.0f} {below:.0f} {to_x:.0f} {to_y:.0f}"
    title = escape(f"{edge.end} {edge.what} {edge.start}")
    return (
        f'<path class="back" marker-end="url(#end)" d="M{x:.0f} {y:.0f} {curve}">'
        f"<title>{title}</title></path>"
    )
