"""The brokers that a campaign runs on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from errata.topics.broker import EmbeddedBroker
from tests.faults.brokers import ThreeBrokers
from tests.faults.proxy import FrameProxy, proxied_broker


@dataclass(frozen=True)
class Cluster:
    """The brokers of a seed.

    Args:
        settings: Client settings.
        one: The broker, if there is one.
        proxy: Through which all clients of one broker come; None: there is none.
        three: The brokers, if there are three.
    """

    settings: Mapping[str, str | int]
    one: EmbeddedBroker | None = None
    proxy: FrameProxy | None = None
    three: ThreeBrokers | None = None

    @property
    def beside(self) -> Mapping[str, str | int]:
        """Client settings that pass the proxy by: of the feed, and of the comparison.

        A producer whose records are written and then refused, as no broker does, may write them
        twice.
        """
        return self.settings if self.proxy is None else self.proxy.beside

    @property
    def broker(self) -> EmbeddedBroker:
        """The only broker."""
        assert self.one is not None
        return self.one

    def stop_process(self) -> None:
        """Stop the broker with SIGSTOP: it keeps its connections, and answers nothing."""
        self._signal("STOP")

    def continue_process(self) -> None:
        """Let it go on."""
        self._signal("CONT")

    def _signal(self, name: str) -> None:
        shim = self.broker._shim
        assert shim is not None
        assert shim.stdin is not None
        shim.stdin.write(f"{name}\n".encode())

    def cleaned(self) -> int:
        """Return how many partitions the cleaner has compacted."""
        lines = (self.broker.folder / "data" / "cleaner-offset-checkpoint").read_text().split("\n")
        return sum(line.count(" ") == 2 and not line.endswith(" 0") for line in lines)


@contextmanager
def one_broker(
    *, proxied: bool, seed: int, overrides: Mapping[str, str | int]
) -> Iterator[Cluster]:
    """Run one embedded broker.

    Args:
        proxied: Whether all clients come through a proxy.
        seed: Of the proxy.
        overrides: Broker settings.
    """
    if proxied:
        with proxied_broker(seed=seed, **overrides) as (broker, proxy):
            yield Cluster(proxy.settings, broker, proxy)
        return
    with EmbeddedBroker(overrides=overrides) as broker:
        yield Cluster(broker.settings, broker)


@contextmanager
def three_brokers(*, seed: int) -> Iterator[Cluster]:
    """Run three brokers, of which each topic has three copies.

    Args:
        seed: Of the proxies before them.
    """
    with ThreeBrokers(seed=seed) as three:
        yield Cluster(three.settings, three=three)
