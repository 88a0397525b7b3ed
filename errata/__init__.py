"""Errata: streams that stay right after the fact.

A network of boxes over Kafka topics, in which every result that a correction invalidates is
revised, however old it is, with its value before and after.
"""

from errata.reading import Table, read
from processors.aggregates.by_value import CompensatingByValue
from processors.aggregates.compensating import Compensating
from processors.aggregates.ohlc import ohlc
from processors.expressions.opaque import python
from processors.faults import NetworkError
from processors.network import Network
from processors.stream import Stream
from processors.windows import hopping, sliding, tumbling
from schemas.errors import ErrataError

__all__ = [
    "Compensating",
    "CompensatingByValue",
    "ErrataError",
    "Network",
    "NetworkError",
    "Stream",
    "Table",
    "hopping",
    "ohlc",
    "python",
    "read",
    "sliding",
    "tumbling",
]
