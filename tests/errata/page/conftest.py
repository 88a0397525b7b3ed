"""A network in memory, and what the page tells of it."""

import pytest
from starlette.testclient import TestClient

from errata.cli import app as commands
from errata.deploy.deployment import DeployedNetwork
from errata.page.desk import Desk
from errata.page.guard import OURS, hosts_of
from errata.page.live import Live
from errata.page.server import Page
from errata.testing import Driver

HOST = "http://127.0.0.1"


@pytest.fixture
def deployment(driver: Driver) -> DeployedNetwork:
    return commands.open_deployment("tape.py")


@pytest.fixture
def live(deployment: DeployedNetwork) -> Live:
    return Live(deployment, since_ms=0, clock_ms=lambda: 1_000)


class Pages:
    """Pages of one network, with other rights each."""

    def __init__(self, deployment: DeployedNetwork, live: Live) -> None:
        self.deployment, self.live = deployment, live

    def client(
        self,
        *,
        host: str = "127.0.0.1",
        token: str = "",
        allow_writes: bool = False,
        url: str = HOST,
    ) -> TestClient:
        desk = Desk(self.deployment)
        page = Page(self.live, tables=desk, reasons=desk, allow_writes=allow_writes)
        return TestClient(page.app(hosts=hosts_of(host), token=token), base_url=url)


@pytest.fixture
def pages(deployment: DeployedNetwork, live: Live) -> Pages:
    return Pages(deployment, live)


@pytest.fixture
def page(pages: Pages) -> TestClient:
    return pages.client()


@pytest.fixture
def writing(pages: Pages) -> TestClient:
    client = pages.client(allow_writes=True)
    client.headers[OURS] = "1"
    return client
