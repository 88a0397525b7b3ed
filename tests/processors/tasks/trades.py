"""A source that tests of tasks share."""

from errata import Network, Stream


def trades_of(net: Network) -> Stream:
    """Declare a source of trades that keeps its history."""
    return net.source(
        "trades",
        fields={"key": "string", "at": "timestamp-millis", "price": "long"},
        identity=["key"],
        event_time="at",
        keep="30d",
    )
