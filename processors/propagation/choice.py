"""The orders by name, and which of them a graph gets."""

from __future__ import annotations

from errata.processors.propagation.dynamic import Dynamic
from errata.processors.propagation.graph import Graph
from errata.processors.propagation.hybrid import Hybrid
from errata.processors.propagation.propagation import Propagation
from errata.processors.propagation.static import Static

STATIC, DYNAMIC, HYBRID = "static", "dynamic", "hybrid"
ORDERS: dict[str, type[Propagation]] = {STATIC: Static, DYNAMIC: Dynamic, HYBRID: Hybrid}


def choose_order(graph: Graph) -> str:
    """Return the order for the boxes of a scope, by what the orders cost (docs/propagation.md).

    A box that follows another costs the hybrid order 20 steps less than the dynamic one, any other
    one 11 more: hence a third. The static order takes the fewest steps for a box with work, but
    one without costs it more than five others save: only a box alone in its scope always has some.

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
