"""A network drawn as a graph."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from errata.processors.compile.compiler import compile_network
from errata.render.graph import ARC, FETCHED, REPLAYED, Edge, Graph, mermaid, placed, svg
from tests.faults import networks
from tests.laws.random_networks import random_network

MADE = {
    "fills": networks.fills,
    "orders": networks.orders,
    "desks": lambda: random_network(2, joins=True).net,
    "loops": lambda: random_network(3, loops=True).net,
}


@pytest.fixture(params=MADE)
def plan(request):
    return compile_network(MADE[request.param]())


def test_all_is_drawn_right_of_what_it_reads_and_nothing_lies_on_anything(plan):
    graph = Graph.of(plan)
    names = {node.name for node in graph.nodes}
    assert names >= {*plan.topology.sources, *plan.boxes}
    assert len(names) == len(graph.nodes)
    places = placed(graph)
    for edge in graph.edges:
        if edge.what == ARC:
            one, other = places[edge.start], places[edge.end]
            assert one.x + one.width < other.x, edge
    for one, other in combinations(places.values(), 2):
        is_beside = one.x + one.width < other.x or other.x + other.width < one.x
        is_apart = one.y + one.height < other.y or other.y + other.height < one.y
        assert is_beside or is_apart, (one, other)


def test_a_picture_is_xml_with_every_name_and_line(plan):
    graph = Graph.of(plan)
    root = ElementTree.fromstring(svg(graph))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {node.name for node in graph.nodes} <= {*texts}
    lines = [
        each for each in root.iter("{http://www.w3.org/2000/svg}path") if each.get("marker-end")
    ]
    assert len(lines) == len(graph.edges)


def test_a_flowchart_names_each_node_once_and_draws_lines_between_them(plan):
    graph, text = Graph.of(plan), mermaid(Graph.of(plan))
    declared = re.findall(r"^ {4}(n\d+)[(\[]", text, re.MULTILINE)
    lines = re.findall(r"^ {2}(n\d+) (?:-->|-\. \w+ \.->) (n\d+)$", text, re.MULTILINE)
    assert len(declared) == len({*declared}) == len(graph.nodes)
    assert len(lines) == len(graph.edges)
    assert {end for line in lines for end in line} <= {*declared}


def test_dashed_lines_say_what_is_replayed_and_what_is_fetched():
    edges = Graph.of(compile_network(networks.fills())).edges
    assert Edge("wanted", "sums", REPLAYED) in edges
    assert Edge("sums", "sums", FETCHED) not in edges  # it is in upstream mode
    assert Edge("same", "same", FETCHED) in edges
    assert {Edge("sums", "turns", REPLAYED), Edge("turns", "turns", FETCHED)} <= {*edges}
