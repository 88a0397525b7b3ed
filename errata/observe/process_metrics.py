"""Metrics of any process: version, readiness and main loop."""

from __future__ import annotations

import platform

from confluent_kafka import libversion

from errata.observe.pulse import Pulse
from errata.observe.samples import COUNTER, GAUGE, Metric, Samples
from errata.version import VERSION

BUILD = Metric(
    "errata_build_info", GAUGE, ("version", "python", "librdkafka"), "1; which software it is."
)
READY = Metric("errata_ready", GAUGE, (), "1 if `/readyz` says so, else 0.")
TURN_AGE = Metric(
    "errata_turn_age_seconds", GAUGE, (), "Time since the main loop last turned; far below 1 s."
)

PROCESS_METRICS = (BUILD, READY, TURN_AGE)
LIBRARY_METRICS = (
    Metric(
        "process_cpu_seconds_total", COUNTER, (), "Total user and system CPU time spent in seconds."
    ),
    Metric(
        "process_start_time_seconds",
        GAUGE,
        (),
        "Start time of the process since unix epoch in seconds.",
    ),
    Metric("process_resident_memory_bytes", GAUGE, (), "Resident memory size in bytes."),
    Metric("process_virtual_memory_bytes", GAUGE, (), "Virtual memory size in bytes."),
    Metric("process_open_fds", GAUGE, (), "Number of open file descriptors."),
    Metric("process_max_fds", GAUGE, (), "Maximum number of open file descriptors."),
)
"""Metrics that Prometheus' client library adds on Linux; listed here for the page of metrics."""


def process_metrics(pulse: Pulse) -> Samples:
    """Return the current metrics of this process, without those of the client library."""
    samples = Samples()
    samples.add(BUILD, 1, VERSION, platform.python_version(), libversion()[0])
    samples.add(READY, int(not pulse.not_ready()))
    samples.add(TURN_AGE, pulse.age_s)
    return samples
