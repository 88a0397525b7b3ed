"""Commands that follow a network at work, each in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from errata.topics.broker import EmbeddedBroker


@contextmanager
def following(
    folder: Path, broker: EmbeddedBroker, *, net: str, command: tuple[str, ...]
) -> Iterator[Path]:
    """Run a command until the context ends; gives the file that its lines go to.

    Args:
        folder: Where the network's file and the lines are put.
        broker: Where the network runs.
        net: The network's file.
        command: The command's name, and its options behind the network.
    """
    (folder / "net.py").write_text(net)
    name, *options = command
    lines = folder / f"{name}.jsonl"
    with lines.open("wb") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "errata", name, "net.py", *options],
            stdout=out,
            cwd=folder,
            env=os.environ
            | {
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            },
        )
        try:
            yield lines
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait() == 130
