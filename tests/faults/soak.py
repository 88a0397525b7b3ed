"""A long run without faults: memory, handles, disk and lag, every few seconds, as a picture."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic

import numpy as np

from errata.processors.wire.report import INTERVAL_MS
from tests.faults.campaign import END_S, START_S, compared
from tests.faults.clusters import one_broker
from tests.faults.processes import Journal, files_of
from tests.faults.recompute import watermark
from tests.faults.running import Running

SAMPLE_S = 5.0
WIDTH, PANEL, LEFT, RIGHT = 720, 110, 80, 130
COLOURS = ("#2a6f97", "#2f9e44", "#c92a2a", "#e67700", "#5f3dc4", "#495057", "#0b7285", "#a61e4d")
POINTS = 180
MEGABYTE = 1 << 20

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sample:
    """What was measured at a moment.

    Args:
        at_s: Seconds since the network started.
        values: By panel and line: the value.
    """

    at_s: float
    values: Mapping[str, Mapping[str, float]]


def soak(network: str, *, minutes: float, seed: int, keep: Path, say: Say) -> list[str]:
    """Run a network under load; draw what it needed; return what differs in the end.

    Args:
        network: Its name.
        minutes: How long.
        seed: Draws the feed.
        keep: A folder for the picture and the journal.
        say: Shows each sample.
    """
    journal = Journal(keep / f"soak-{network}.log")
    with (
        one_broker(proxied=False, seed=seed, overrides={}) as cluster,
        tempfile.TemporaryDirectory(prefix="errata-soak-") as name,
        chdir(name),
    ):
        on = Running(
            network, cluster.settings, folder=Path(name), chance=Random(seed), journal=journal
        )
        samples = list[Sample]()
        try:
            on.processes.start()
            on.until(on.has_started, limit_s=START_S, what="start")
            began = monotonic()
            while monotonic() < began + minutes * 60:
                on.pause(SAMPLE_S)
                samples.append(_sample(on, cluster.broker.folder / "data", monotonic() - began))
                say(", ".join(f"{n} {sum(v.values()):,.1f}" for n, v in samples[-1].values.items()))
            on.feed.is_on = False
            on.feed.flush(limit_s=END_S)
            on.until(on.processed(), limit_s=END_S, what="process all that was fed")
            found = compared(on, watermark(on.tapes), whole=True, when="at rest", say=say)
        finally:
            on.close()
            journal.close()
            picture = keep / f"soak-{network}.svg"
            picture.write_text(drawn(network, samples))
            say(f"drawn: {picture.name}")
    return found + journal.complaints


def _sample(on: Running, data: Path, at_s: float) -> Sample:
    pids = on.processes.pids()
    epoch = time.time_ns() // 1_000_000 // INTERVAL_MS
    frontier = on.frontier()
    lag_s = (epoch - frontier) * INTERVAL_MS / 1000 if frontier >= 0 else 0.0
    return Sample(
        at_s,
        {
            "resident, MB": {n: resident_bytes(pid) / MEGABYTE for n, pid in pids.items()},
            "handles": {name: handles(pid) for name, pid in pids.items()},
            "state, MB": {"all": _size(on.state) / MEGABYTE},
            "topics, MB": {"all": _size(data) / MEGABYTE},
            "lag, s": {"all": max(0.0, lag_s)},
        },
    )


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it is gone."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def handles(pid: int) -> int:
    """Return the number of open files of a process; 0 if it is gone."""
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def _size(folder: Path) -> int:
    """Return what the files below a folder take on the disk: logs have indexes with holes."""
    total = 0
    for file in files_of(folder):
        with suppress(OSError):
            total += file.stat().st_blocks * 512
    return total


def drawn(title: str, samples: list[Sample]) -> str:
    """Return the samples as SVG, a panel for each thing that was measured."""
    samples = samples[:: max(1, len(samples) // POINTS)]
    panels = list(samples[-1].values) if samples else []
    height = 40 + PANEL * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16" font-size="13">{title}, by the minute</text>',
    ]
    longest = max((sample.at_s for sample in samples), default=1.0)
    for number, panel in enumerate(panels):
        parts += _panel(panel, samples, longest, top=30 + PANEL * number)
    for minute in range(int(longest // 60) + 1):
        x = LEFT + minute * 60 / longest * (WIDTH - LEFT - RIGHT)
        parts.append(f'<text x="{x:.0f}" y="{height - 4}" text-anchor="middle">{minute}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: str, samples: list[Sample], longest: float, *, top: int) -> list[str]:
    most = max(max(sample.values[panel].values(), default=0) for sample in samples) or 1
    height = PANEL - 26

    def place(at_s: float, value: float) -> str:
        x = LEFT + at_s / longest * (WIDTH - LEFT - RIGHT)
        return f"{x:.1f},{top + height - value / most * height:.1f}"

    names = list(dict.fromkeys(name for sample in samples for name in sample.values[panel]))
    parts = [
        f'<path d="M{LEFT} {top}V{top + height}H{WIDTH - RIGHT}" fill="none" stroke="#bbb"/>',
        f'<text x="{LEFT - 6}" y="{top + 8}" text-anchor="end">{most:,.1f}</text>',
        f'<text x="{LEFT - 6}" y="{top + height / 2:.0f}" text-anchor="end">{panel}</text>',
    ]
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        known = [(s.at_s, s.values[panel][name]) for s in samples if name in s.values[panel]]
        points = " ".join(place(at_s, value) for at_s, value in known)
        label = name if len(names) > 1 else f"{np.mean([v for _, v in known]):,.1f} on average"
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT + 6}" y="{top + 8 + 11 * number}" fill="{colour}">'
            f"{label}</text>"
        )
    return parts
