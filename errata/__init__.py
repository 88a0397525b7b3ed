"""Errata: streams that stay right after the fact.

A network of boxes over Kafka topics, in which every result that a correction invalidates is
revised, however old it is, with its value before and after.
"""

from processors.faults import NetworkError
from processors.network import Network, Stream
from processors.windows import hopping, tumbling
from schemas.errors import ErrataError

__all__ = ["ErrataError", "Network", "NetworkError", "Stream", "hopping", "tumbling"]
