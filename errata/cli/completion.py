"""Shell completion of arcs and sources, from the network's file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from errata.processors.declare.declarations import Source
from errata.processors.declare.network import Network
from errata.settings.loading import load


def _completing(names: Callable[[Network], Iterable[str]]) -> Callable[..., list[str]]:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            found = names(load(str(context.params.get("net"))))
        except BaseException:  # noqa: BLE001  a file that can't be loaded has nothing to offer
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


arcs = _completing(lambda network: network.declarations)
"""Completes the name of an arc of the network NET."""

sources = _completing(
    lambda network: (n for n, d in network.declarations.items() if isinstance(d, Source))
)
"""Completes the name of a source of the network NET."""
