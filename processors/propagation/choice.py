"""The orders by name, and which of them a graph gets."""

from __future__ import annotations

from processors.propagation.dynamic import Dynamic
from processors.propagation.graph import Graph
from processors.propagation.hybrid import Hybrid
from processors.propagation.propagation import Propagation
from processors.propagation.static import Static

ORDERS: dict[str, type[Propagation]] = {"static": Static, "dynamic": Dynamic, "hybrid": Hybrid}


def choose_order(graph: Graph) -> str:
    return "dynamic"
