"""A network as it is deployed on a cluster, for commands that look at it or tell it something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from errata.deploy.deployment import Deployment, as_it_runs, open_network
from errata.settings.loading import load
from errata.settings.settings import read_settings


@contextmanager
def deployed(net: str) -> Iterator[Deployment]:
    """Open the cluster that a network runs on, and compile its plan.

    Raises:
        NotDeployedError: If it doesn't run there.
        PlanMismatchError: If what runs there is another network of that name.
    """
    with as_it_runs(open_deployment(net), start=f"errata up {net}") as found:
        yield found


def open_deployment(net: str) -> Deployment:
    """Return a network on the cluster that the settings name, whether it runs there or not."""
    return open_network(load(net), read_settings())
