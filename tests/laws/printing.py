"""Prints the declarations of a network, for messages."""

from typing import Any

from errata import Compensating, CompensatingByValue, Network
from errata.processors.declare.declarations import Declaration, Sink

_UNSAID = ("name", "arc", "place", "fields", "identity", "start")


def tell(net: Network) -> str:
    """Return the declarations of a network, a line for each box, without common source options."""
    return "\n".join(map(_tell, [*net.declarations.values(), *net.sinks]))


def _tell(box: Declaration | Sink) -> str:
    given = [
        f"{name}={_plain(value)!r}"
        for name, value in vars(box).items()
        if name not in _UNSAID and (value not in (None, (), False) or name == "window")
    ]
    name = box.arc if isinstance(box, Sink) else box.name
    return f"{type(box).__name__.lower()}({name!r}, {', '.join(given)})"


def _plain(value: Any) -> Any:
    if isinstance(value, Compensating | CompensatingByValue):
        return f"{type(value).__name__}{value.arguments}"
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
