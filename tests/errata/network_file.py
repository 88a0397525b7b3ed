"""The network of figure 1 of Borealis, as the tests of the command line write it to a file."""

from pathlib import Path

TEXT = """
from errata import Network, hopping

net = Network("{name}")
prices = net.source(
    "prices", topic="{name}-prices", format="json", keep="1d", identity=["key"], event_time="at",
    fields={{"key": "string", "at": "timestamp-millis", "symbol": "string",
            "price": "decimal(9,2)"}},
)
window = hopping("30m", every="20m")
sums = prices.aggregate(
    "sums", by=["symbol"], window=window, total="sum(price)", n="count(*)", keep="1d"
)
plain = prices.where("plain", "price > 0").aggregate(
    "counts", by=["symbol"], window=window, n="count(*)", scope="{scope}"
)
"""


def write_network(folder: Path, *, name: str = "figure", scope: str = "prices") -> Path:
    path = folder / "tape.py"
    path.write_text(TEXT.format(name=name, scope=scope))
    return path
