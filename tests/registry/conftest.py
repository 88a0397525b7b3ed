"""What the tests of registries share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from errata.topics.broker import EmbeddedBroker
from tests.errata.conftest import environ
from tests.registry.running import Running

__all__ = ["environ"]


@pytest.fixture
def on(
    tmp_path: Path, environ: dict[str, str], broker: EmbeddedBroker
) -> Iterator[Callable[[str | None], Running]]:
    """Return a network file on the broker, with a registry that is a server, or without one."""
    made: list[Running] = []

    def begin(url: str | None) -> Running:
        settings = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        variables = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
        if url is not None:
            settings |= {"schema_registry.url": url}
            variables |= {"SCHEMA_REGISTRY_URL": url}
        made.append(Running(tmp_path, environ | variables, settings))
        return made[-1]

    yield begin
    for running in made:
        running.close()
