"""A network that is bound to an arc of another one, over a real broker: `envelope="arc"`."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.errata.running import Running

pytestmark = pytest.mark.kafka

UPPER = """
from errata import Network

net = Network("NAME_upper")
prices = net.source(
    "prices", topic="NAME-prices", format="json", keep="1d", identity=["key"], event_time="at",
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
    partition_by=["symbol"], partitions=2,
)
prices.where("kept", "true", keep="2d")
"""
LOWER = """
from errata import Network, hopping

net = Network("NAME")
prices = net.source("prices", topic="NAME_upper.kept", envelope="arc", event_time="at", keep="1d")
options = dict(by=["symbol"], window=hopping("30m", every="20m"), keep="1d")
prices.aggregate("up", mode="upstream", total="sum(price)", top="max(price)", **options)
prices.aggregate("down", mode="downstream", scope="down", total="sum(price)", top="max(price)",
                 **options)
"""


class Both:
    """Two networks; the file of the lower one is `moved.py`."""

    def __init__(self, running: Running) -> None:
        self.running = running
        for file, text in (("upper.py", UPPER), ("moved.py", LOWER)):
            (running.folder / file).write_text(text.replace("NAME", running.name))

    def start(self) -> list[subprocess.Popen[bytes]]:
        """Start both."""
        upper = self.running.start("up", "upper.py")
        self.running.wait_for(lambda: self.deploys("upper.py"), "upper")
        return [upper, self.running.start("up", "moved.py")]

    def deploys(self, file: str) -> bool:
        return self.running.errata("status", file, "--json").returncode == 0

    def is_right(self) -> bool:
        return all(self.running.found(arc) == self.running.wanted() for arc in ("up", "down"))


def kill_children(process: subprocess.Popen[bytes]) -> None:
    told = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    for child in map(int, told.split()):
        os.kill(child, signal.SIGKILL)


def test_a_network_reads_the_arc_of_another_where_it_is(running: Running):
    both = Both(running)
    early = running.errata("deploy", "moved.py")
    assert early.returncode == 1
    assert f"network '{running.name}_upper', which is not deployed" in early.stderr
    running.send(300)
    started = both.start()
    running.wait_for(lambda: both.deploys("moved.py"), "lower")
    running.send(300)
    running.wait_for(running.at_work, "taken in")
    for process in started:
        kill_children(process)
        running.send(100)
    for command in ("end", "watermark"):
        refused = running.errata(command, "moved.py", "prices", *RESTORE[command])
        assert refused.returncode == 1, refused.stdout
        assert f"is arc 'kept' of network '{running.name}_upper': do that there" in refused.stderr
    asked = running.errata("why", "moved.py", "up", "symbol=IBM")
    assert (asked.returncode, asked.stdout) == (1, "")
    assert f"is arc 'kept' of network '{running.name}_upper': do that there" in asked.stderr
    assert running.errata("end", "upper.py", "prices").returncode == 0
    running.wait_for(both.is_right, "right at the end")
    for process in started:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(30) for process in started] == [0, 0]
    running.send(100)
    started = both.start()
    running.wait_for(both.is_right, "right after corrections")
    for process in started:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(30) for process in started] == [0, 0]
    assert "Traceback" not in running.log.read_text()


RESTORE = {"end": (), "watermark": ("--restore", "2026-01-01T00:00:00Z")}
