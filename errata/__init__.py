"""Errata: streams that stay right after the fact.

A network of boxes over Kafka topics, in which every result that a correction invalidates is
revised, however old it is, with its value before and after.
"""

from errata.processors.aggregates.by_value import CompensatingByValue
from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.ohlc import ohlc
from errata.processors.expressions.opaque import python
from errata.processors.faults import NetworkError
from errata.processors.network import Network
from errata.processors.stream import Stream
from errata.processors.windows import hopping, sliding, tumbling
from errata.reading import Table, read
from errata.schemas.errors import ErrataError

__version__ = "0.1.0"

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
