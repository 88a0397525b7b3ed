"""Opens a deployed network, for commands that inspect it or write to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from errata.deploy.deployment import Deployment, as_it_runs, open_network
from errata.settings.loading import load
from errata.settings.settings import read_settings


@contextmanager
def deployed(net: str) -> Iterator[Deployment]:
    """Open the cluster that a network runs on, and compile the network's plan.

    Raises:
        NotDeployedError: If it doesn't run there.
        PlanMismatchError: If another network of that name runs there.
    """
    with as_it_runs(open_deployment(net), start=f"errata up {net}") as found:
        yield found


def open_deployment(net: str) -> Deployment:
    """Return a network on the cluster that the settings name, whether or not it runs there."""
    return open_network(load(net), read_settings())
