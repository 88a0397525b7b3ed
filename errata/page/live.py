"""Watches a running network, and tells browsers what has changed, twice a second.

A thread reads the reports of all tasks, and the revisions of all arcs that boxes write. It makes
one message of each tick, for all browsers: what has changed since the one before, with a sample of
the corrections if there are many.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

from errata.client.corrections import Correction, Corrections
from errata.client.following import Follower
from errata.client.identity import identity_fields
from errata.client.json_lines import json_line
from errata.client.status_text import as_data
from errata.deploy.deployment import DeployedNetwork
from errata.observe.network_progress import Progress, status
from errata.page.desk import sides_shown
from errata.processors.plan.deployed import NewVersionError
from errata.processors.wire.report import INTERVAL_MS, CountKey
from errata.schemas.errors import ErrataError
from errata.topics.cluster import ClusterError, LostOffsetError, TopicPartition
from errata.topics.registry import SchemaRegistry

TICK_S = 0.5
"""How often browsers are told what has changed."""
MOST_SHOWN = 50
"""Most corrections of an arc in one message; of more, the newest, with their number."""
MOST_KEPT = 500
"""Corrections that are kept for browsers that come later."""
_RATE_TICKS = 6
_TICKS_KEPT = 20
_RETRY_S = 1.0

Data = dict[str, Any]


class Live:
    """What a network does, as messages for browsers.

    Args:
        deployment: The network; this alone uses its connection.
        since_ms: Show corrections of epochs after this time, in ms since 1970.
        clock_ms: The time.
    """

    def __init__(
        self,
        deployment: DeployedNetwork,
        *,
        since_ms: int,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.deployment, self._clock_ms = deployment, clock_ms
        topology = deployment.plan.topology
        shown = [arc for arc in topology.topics if not topology.arcs[arc].exchange]
        derived = [arc for arc in shown if arc not in topology.sources]
        self._derived = derived
        self._follow(since_ms)
        self._counters = _Rates()
        self._state: Data = {}
        self._kept: deque[Data] = deque(maxlen=MOST_KEPT)
        self._found: list[Data] = []
        self._left_out = self._seen = 0
        self._changed = threading.Condition()
        self._ticks: deque[tuple[int, bytes]] = deque(maxlen=_TICKS_KEPT)
        self._number = 0
        self._ending = threading.Event()
        self.failure: ErrataError | None = None
        """Why it no longer watches."""
        self.is_over = False
        """Whether it has ended."""
        self.listeners: list[Callable[[], None]] = []
        """Called by the thread after each tick, and at the end."""

    def _follow(self, since_ms: int) -> None:
        self.follower = Follower(self.deployment, self._derived, since_ms=since_ms)
        self._corrections = Corrections(self.follower.progress)

    # ---------------------------------------------------------------- for browsers

    def messages(self, last: int | None) -> tuple[int, list[bytes]]:
        """Return the number of the newest message, and what a browser has not been told.

        Args:
            last: The number of the last message that it has got; None at first.
        """
        with self._changed:
            missed = [text for number, text in self._ticks if last is not None and number > last]
            if last is None or len(missed) < self._number - last:
                return self._number, [self._whole()]
            return self._number, missed

    def _whole(self) -> bytes:
        found = {"rows": list(self._kept), "seen": self._seen}
        return json_line(self._state | {"whole": True, "corrections": found})

    # ---------------------------------------------------------------- the thread

    def run(self) -> None:
        """Watch until `end`; what ends it sooner is in `failure`."""
        try:
            while not self._ending.is_set():
                try:
                    self.look(wait_s=TICK_S)
                    self.tell()
                except LostOffsetError:  # retention was faster, or the brokers lost records
                    self.follower.close()
                    self._follow(self._clock_ms())
                except ClusterError as error:
                    self._publish({"trouble": str(error)})
                    self._ending.wait(_RETRY_S)
        except ErrataError as error:
            self.failure = error
        finally:
            self.follower.close()
            self.is_over = True
            self._tell_listeners()

    def end(self) -> None:
        """End the thread soon."""
        self._ending.set()

    def look(self, *, wait_s: float) -> None:
        """Read what arrives within a time.

        Raises:
            NewVersionError: If another version of the plan is deployed.
        """
        until_s = monotonic() + wait_s
        arcs = self.deployment.plan.topology.arcs
        while True:
            found = self.follower.step(wait_s=max(0.0, min(0.1, until_s - monotonic())))
            self._corrections.note_reports()
            for name, revisions in found.items():
                corrections, count = self._corrections.among(arcs[name], revisions, most=MOST_SHOWN)
                self._seen += count
                self._left_out += count - len(corrections)
                self._found += map(self._plain, corrections)
            if self._ending.is_set() or monotonic() >= until_s:
                break
        version, newest = self.deployment.plan.deployment.version, self.follower.progress.version
        if newest > version:
            raise NewVersionError(
                f"network {self.deployment.plan.network!r} moves to version {newest} of its plan; "
                f"the page of version {version} ends"
            )

    def tell(self) -> None:
        """Make a message of what has changed since the last one."""
        progress, schemas = self.follower.progress, self.deployment.registry
        if isinstance(schemas, SchemaRegistry):
            schemas.read()
        now_ms = self._clock_ms()
        state = as_data(status(progress, now_ms=now_ms, schemas=schemas))
        rates = self._counters.of(progress, now_ms)
        tasks = {task.pop("task"): task for task in state.pop("tasks")}
        for name, task in tasks.items():
            counts = {CountKey.parse(text): n for text, n in task.pop("counts").items()}
            task["read"] = counts.get(CountKey("read"), 0)
            task["dead_letters"] = counts.get(CountKey("dead_letters"), 0)
            task["late"] = counts.get(CountKey("late"), 0)
            task["rate"] = rates.get(name, 0.0)
        arcs = {arc.pop("arc"): arc for arc in state.pop("arcs")}
        for name, arc in arcs.items():
            arc["rate"] = rates.get(f"arc {name}", 0.0)
        whole = {**state, "tasks": tasks, "arcs": arcs, "refused": _refused(progress)}
        self._kept += self._found
        self._publish(
            whole,
            now_ms=now_ms,
            trouble=None,
            corrections={
                "rows": self._found[-MOST_KEPT:],
                "left_out": self._left_out,
                "seen": self._seen,
            },
        )
        self._found, self._left_out = [], 0

    def _publish(self, state: Data, **told: Any) -> None:
        """Publish what differs from the state before, and what is only told now."""
        message: Data = {}
        for name, now in state.items():
            before = self._state.get(name)
            if isinstance(now, dict) and isinstance(before, dict):
                changed = {key: each for key, each in now.items() if before.get(key) != each}
                if changed:
                    message[name] = changed
            elif now != before:
                message[name] = now
        with self._changed:
            self._state = (
                self._state | state | {k: v for k, v in told.items() if k != "corrections"}
            )
            self._number += 1
            self._ticks.append((self._number, json_line({**message, **told})))
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for tell in list(self.listeners):
            tell()

    def _plain(self, correction: Correction) -> Data:
        arc = self.deployment.plan.topology.arcs[correction.arc]
        plain = sides_shown(arc, dict(vars(correction)))
        own = {"at_ms": correction.epoch * INTERVAL_MS, "identity": identity_fields(arc)}
        return plain | own


def _refused(progress: Progress) -> dict[str, int]:
    """Return how many records were refused, by reason."""
    found: dict[str, int] = {}
    for report in progress.reports.values():
        for text, count in report.counts.items():
            key = CountKey.parse(text)
            reason = key.reason or (f"box {key.box}" if key.what == "refused" and key.box else "")
            if reason:
                found[reason] = found.get(reason, 0) + count
    return found


class _Rates:
    """Counts how much tasks read and arcs get in a second, from running totals."""

    def __init__(self) -> None:
        self._before: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=_RATE_TICKS)

    def of(self, progress: Progress, now_ms: int) -> dict[str, float]:
        """Return the rates by task and by ``arc NAME``, over the last ticks."""
        totals = dict(_totals(progress))
        since_ms, before = self._before[0] if self._before else (now_ms, totals)
        self._before.append((now_ms, totals))
        seconds = (now_ms - since_ms) / 1000
        if seconds <= 0:
            return {}
        return {
            name: round((total - before[name]) / seconds, 1)
            for name, total in totals.items()
            if name in before and total > before[name]
        }


def _totals(progress: Progress) -> Iterator[tuple[str, int]]:
    """Yield how many records each task has read, and where the arcs end."""
    for task, report in progress.reports.items():
        yield task, report.counts.get("read", 0)
    plan = progress.plan
    for arc in plan.topology.topics:
        topic = plan.deployment.topic(arc)
        ends = 0
        for partition in range(plan.placement.partitions[arc]):
            place = TopicPartition(topic, partition)
            of_writers = (
                progress.of(w).ends.get(place, (0, 0)) for w in progress.writers(arc, partition)
            )
            ends += max((end for end, _ in of_writers), default=0)
        yield f"arc {arc}", ends
