"""Errata: streams that stay right after the fact.

A network of boxes over Kafka topics, in which every result that a correction invalidates is
revised, however old it is, with its value before and after.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from errata.version import VERSION

if TYPE_CHECKING:
    from errata.client.changes import Change, Changes, follow
    from errata.client.reading import Table, read
    from errata.processors.aggregates.by_value import CompensatingByValue
    from errata.processors.aggregates.compensating import Compensating
    from errata.processors.aggregates.functions import ohlc
    from errata.processors.declare.faults import NetworkError
    from errata.processors.declare.network import Network, Stream
    from errata.processors.expressions.opaque import python
    from errata.processors.windows.time_windows import hopping, sliding, tumbling
    from errata.render.history import History, plot
    from errata.schemas.errors import ErrataError

__version__ = VERSION

__all__ = [
    "Change",
    "Changes",
    "Compensating",
    "CompensatingByValue",
    "ErrataError",
    "History",
    "Network",
    "NetworkError",
    "Stream",
    "Table",
    "__version__",
    "follow",
    "hopping",
    "ohlc",
    "plot",
    "python",
    "read",
    "sliding",
    "tumbling",
]

_HOMES = {
    "Change": "client.changes",
    "Changes": "client.changes",
    "History": "render.history",
    "follow": "client.changes",
    "plot": "render.history",
    "Compensating": "processors.aggregates.compensating",
    "CompensatingByValue": "processors.aggregates.by_value",
    "ErrataError": "schemas.errors",
    "Network": "processors.declare.network",
    "NetworkError": "processors.declare.faults",
    "Stream": "processors.declare.network",
    "Table": "client.reading",
    "hopping": "processors.windows.time_windows",
    "ohlc": "processors.aggregates.functions",
    "python": "processors.expressions.opaque",
    "read": "client.reading",
    "sliding": "processors.windows.time_windows",
    "tumbling": "processors.windows.time_windows",
}
"""Where each name is defined: it is imported when it is used, so that commands start quickly."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'errata' has no attribute {name!r}")
    found = getattr(import_module(f"errata.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
