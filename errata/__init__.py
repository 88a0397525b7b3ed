"""Errata: streams that stay right after the fact.

A network of boxes over Kafka topics, in which every result that a correction invalidates is
revised, however old it is, with its value before and after.
"""

from errata.client.reading import Table, read
from errata.processors.aggregates.by_value import CompensatingByValue
from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.functions import ohlc
from errata.processors.declare.faults import NetworkError
from errata.processors.declare.network import Network, Stream
from errata.processors.expressions.opaque import python
from errata.processors.windows.time_windows import hopping, sliding, tumbling
from errata.schemas.errors import ErrataError
from errata.version import VERSION

__version__ = VERSION

__all__ = [
    "Compensating",
    "CompensatingByValue",
    "ErrataError",
    "Network",
    "NetworkError",
    "Stream",
    "Table",
    "__version__",
    "hopping",
    "ohlc",
    "python",
    "read",
    "sliding",
    "tumbling",
]
