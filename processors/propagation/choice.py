"""The orders by name, and which of them a graph gets."""

from __future__ import annotations

from processors.propagation.dynamic import Dynamic
from processors.propagation.graph import Graph
from processors.propagation.hybrid import Hybrid
from processors.propagation.propagation import Propagation
from processors.propagation.static import Static

STATIC, DYNAMIC, HYBRID = "static", "dynamic", "hybrid"
ORDERS: dict[str, type[Propagation]] = {STATIC: Static, DYNAMIC: Dynamic, HYBRID: Hybrid}


def choose_order(graph: Graph) -> str:
    """Return the order for the boxes of a scope, by what the orders cost (docs/propagation.md).

    A box that follows another costs the hybrid order 15 steps less than the dynamic one, and any
    other box 10 steps more. The static order has the fewest for boxes that run, but runs all
    of them: only a box that is alone in its scope surely has something to do in each epoch.

    Example:
        >>> choose_order(Graph([[]])), choose_order(Graph([[], [0], [0]]))
        ('static', 'dynamic')
        >>> choose_order(Graph([[], [0], [1], [2]]))
        'hybrid'
    """
    if len(graph) < 2:
        return STATIC
    followers = sum(follower is not None for follower in graph.follower)
    return HYBRID if 3 * followers >= len(graph) else DYNAMIC
