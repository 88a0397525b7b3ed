"""What any process tells of itself, by the names that Prometheus' client libraries use."""

from __future__ import annotations

import os
import platform
import resource
import time
from pathlib import Path

from confluent_kafka import libversion

from errata.observe.exposition import COUNTER, GAUGE, Exposition, Metric
from errata.observe.pulse import Pulse
from errata.version import VERSION

BUILD = Metric(
    "errata_build_info", GAUGE, ("version", "python", "librdkafka"), "1; which software it is."
)
READY = Metric("errata_ready", GAUGE, (), "1 if `/readyz` says so, else 0.")
TURN_AGE = Metric(
    "errata_turn_age_seconds", GAUGE, (), "Time since the main loop last turned; far below 1 s."
)
CPU = Metric("process_cpu_seconds_total", COUNTER, (), "Processor time, user and system.")
STARTED = Metric("process_start_time_seconds", GAUGE, (), "When it started, since the epoch.")
RESIDENT = Metric("process_resident_memory_bytes", GAUGE, (), "Memory that is resident.")
VIRTUAL = Metric("process_virtual_memory_bytes", GAUGE, (), "Memory that is mapped.")
OPEN = Metric("process_open_fds", GAUGE, (), "Open file descriptors.")
MOST_OPEN = Metric("process_max_fds", GAUGE, (), "File descriptors that may be open.")

PROCESS_METRICS = (BUILD, READY, TURN_AGE, CPU, STARTED, RESIDENT, VIRTUAL, OPEN, MOST_OPEN)

_STARTED_S = time.time()
_PROC = Path("/proc/self")


def process_metrics(pulse: Pulse) -> str:
    """Return the metrics of this process as they are now."""
    page = Exposition()
    page.add(BUILD, 1, VERSION, platform.python_version(), libversion()[0])
    page.add(READY, int(not pulse.not_ready()))
    page.add(TURN_AGE, pulse.age_s)
    page.add(CPU, time.process_time())
    page.add(STARTED, _STARTED_S)
    if _PROC.exists():  # Linux
        pages = (_PROC / "statm").read_text().split()
        page.add(RESIDENT, int(pages[1]) * resource.getpagesize())
        page.add(VIRTUAL, int(pages[0]) * resource.getpagesize())
        page.add(OPEN, len(os.listdir(_PROC / "fd")))
    page.add(MOST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return page.text()
