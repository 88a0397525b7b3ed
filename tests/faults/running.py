"""A network that runs with its feed on a cluster, and how far it has come."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic

from errata import Network
from errata.demo.run import environment
from errata.deploy.deployment import prepare
from errata.deploy.processes import ALL, Part
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import declare_end
from errata.processors.plan.topology import ingest_scope
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import FOREVER, NEVER
from errata.run.supervisor import network_commands
from errata.schemas.errors import ErrataError
from errata.settings.place import read_settings
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.faults import feed as tapes
from tests.faults import networks, recompute
from tests.faults.feed import Feed, Tape
from tests.faults.processes import Journal, Processes
from tests.faults.recompute import Content

TURN_S = 0.02
RECOVER_S = 240.0
"""How long a network may take until it has processed what was fed: several faults may overlap."""
SMALL = "tests.faults.small"
"""The module that runs in the place of `errata`."""
STACKS = Path(__file__).parent / "stacks"


class StuckError(Exception):
    """The network does not do something in time."""


@dataclass(frozen=True)
class Kind:
    """A network of the campaign.

    Args:
        declare: Declares it; `partitions` are those of its aggregates.
        tapes: Makes its tapes.
        contents: What its arcs hold, when windows up to a watermark have closed.
    """

    declare: Callable[..., Network]
    tapes: Callable[[Random], list[Tape]]
    contents: Callable[..., dict[str, Content]]


FED = {
    "fills": Kind(networks.fills, tapes.fills, recompute.fills),
    "orders": Kind(networks.orders, tapes.orders, recompute.orders),
}
"""Networks that a seed draws one of."""
KINDS = FED | {"desks": Kind(networks.desks, tapes.fills, recompute.desks)}


class Running:
    """One network of the campaign on a cluster.

    Args:
        name: The network.
        settings: Client settings of the brokers.
        folder: A folder for it; the working folder.
        chance: Draws the feed.
        journal: Takes what the processes say.
        environ: Variables for the processes.
        feed_settings: Client settings of the feed, if it has others.
        apart: Whether each scope has a process of its own.
        most: Most processes of tasks, if they are not apart.
        above: The network to whose arcs its sources are bound; it has started. Then the two run
            together, each with its own processes.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, str | int],
        *,
        folder: Path,
        chance: Random,
        journal: Journal,
        environ: Mapping[str, str] | None = None,
        spark: bool = False,
        feed_settings: Mapping[str, str | int] | None = None,
        apart: bool = True,
        most: int | None = None,
        topics: Mapping[str, str] | None = None,
        above: "Running | None" = None,
    ) -> None:
        self.name, self.kind, self.settings = name, KINDS[name], dict(settings)
        self.folder, self.journal, self.spark = folder, journal, spark
        self.feed_settings = dict(feed_settings or settings)
        self.partitions = 2
        self.state = folder / "state"
        self.environ = environment(str(settings["bootstrap.servers"]), state=self.state)
        self.environ |= {"ERRATA_LOG__FORMAT": "json", **(environ or {})}
        self.environ["PYTHONPATH"] += f"{os.pathsep}{STACKS}"
        self.above = above
        self.together: list[Running] = [] if above is None else above.together
        """The networks that run together, from the one that is fed on."""
        if above is None:
            self.tapes = self.kind.tapes(chance)
            self.feed = Feed(self.feed_settings, self.tapes)
            topic_settings = topics or {}
            create_topics(
                self.feed_settings,
                [TopicSpec(tape.topic, tape.partitions, topic_settings) for tape in self.tapes],
            )
        else:
            self.tapes, self.feed = above.tapes, above.feed
        self.write_file()
        self.view: View | None = None
        self.plan = self._prepare()
        prefix = "" if above is None else f"{self.name}."
        known = network_commands(self.file, self.plan, apart=apart, most=most)
        commands = {
            f"{prefix}{name}": [SMALL if part == "errata" else part for part in command]
            for name, command in known.items()
        }
        self.processes = Processes(commands, self.environ, journal)
        self.has_damaged = False
        """Whether files of a state were damaged, which may not have been noticed yet."""
        self.undead: dict[str, int] = {}
        """Ids of processes that were replaced and run on."""
        self.lost = set[str]()
        """Arcs of which brokers have lost records: that is noticed now and then only."""
        self.together.append(self)

    # --------------------------------------------------------------------- the network

    @property
    def net(self) -> Network:
        """The network, as it is declared now."""
        return self.kind.declare(partitions=self.partitions, **self.options)

    @property
    def options(self) -> dict[str, bool]:
        return {"spark": True} if self.spark else {}

    @property
    def file(self) -> str:
        """The file from which the processes read the network."""
        return f"{self.name}.py"

    def write_file(self, name: str = "") -> None:
        """Write a file with the network: the one that the processes read, or one of this name."""
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        text = f"from tests.faults.networks import {self.name}\n"
        text += f"net = {self.name}(partitions={self.partitions}{options})\n"
        (self.folder / (name or self.file)).write_text(text)

    def _prepare(self) -> CompiledPlan:
        cluster = KafkaCluster(self.feed_settings)
        try:
            return prepare(self.net, read_settings(self.environ, folder=self.folder), cluster)
        finally:
            cluster.close()

    def command(self, *arguments: str, limit_s: float = 120.0) -> str:
        """Run a command of `errata` while the network runs; return what it printed.

        Raises:
            StuckError: If it fails or does not end.
        """
        command = [sys.executable, "-P", "-m", "errata", *arguments]
        running = subprocess.Popen(
            command, cwd=self.folder, env=self.environ, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        what = f"end `errata {' '.join(arguments)}`"
        try:
            self.until(lambda: running.poll() is not None, limit_s=limit_s, what=what)
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGUSR1)
                time.sleep(0.5)
            running.kill()
            said, _ = running.communicate()
            status = running.returncode
            self.journal.note(f"`errata {' '.join(arguments)}` ended with {status}: {said}")
        if running.returncode:
            raise StuckError(f"`errata {' '.join(arguments)}` failed: {said}")
        return said

    def replan(self) -> None:
        """Take over the plan that is deployed now."""
        self.plan = self._prepare()
        self._drop_view()

    # ------------------------------------------------------------------------ progress

    def turn(self) -> None:
        """Do what is due: feed, start processes again, read reports."""
        if self.feed.is_on:
            self.feed.advance()
        for network in self.together:
            network.processes.poll()
            network.read_reports()
        time.sleep(TURN_S)

    def pause(self, seconds: float) -> None:
        """Let the network run for a while."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            self.turn()

    def until(self, condition: Callable[[], bool], *, limit_s: float, what: str) -> float:
        """Let the network run until something holds; return the seconds that took.

        Raises:
            StuckError: If it takes too long.
        """
        began = monotonic()
        while not condition():
            self.turn()
            if monotonic() > began + limit_s:
                self.show_stacks()
                raise StuckError(f"did not {what} within {limit_s:g} s: {self.behind()}")
        return monotonic() - began

    def show_stacks(self) -> None:
        """Let all processes write to the journal what they are doing."""
        for network in self.together:
            for name, pid in [*network.processes.pids().items(), *network.undead.items()]:
                self.journal.note(f"stacks of {name}, {pid}:")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
                time.sleep(0.5)

    def read_reports(self) -> None:
        """Read the reports that have arrived; connect again if the brokers were away."""
        try:
            if self.view is None:
                self.view = View(KafkaCluster(self.feed_settings, reach_s=1.0), plan=self.plan)
            self.view.poll()
        except ErrataError as error:
            self.journal.note(f"campaign: {error}")
            self._drop_view()

    def _drop_view(self) -> None:
        if self.view is not None:
            self.view.close()
            self.view = None

    def tasks(self) -> list[str]:
        """Return all tasks."""
        view = self._known_view()
        return [task for scope in self.plan.topology.all_scopes for task in view.tasks(scope)]

    def tasks_of(self, process: str) -> set[str]:
        """Return the tasks of a process, if it runs scopes."""
        options = list(pairwise(self.processes.commands[process]))
        part = next((Part.parse(text) for option, text in options if option == "--part"), ALL)
        by_scope = [
            self.plan.placement.tasks(text) for option, text in options if option == "--scope"
        ]
        return {tasks[number] for tasks in by_scope for number in part.partitions(len(tasks))}

    def _known_view(self) -> View:
        while self.view is None:
            self.turn()
        return self.view

    def has_started(self) -> bool:
        """Return whether every task has reported."""
        view = self.view
        return view is not None and all(view.of(task).attempt for task in self.tasks())

    def has_read(self, sent: Mapping[tuple[str, int], int]) -> bool:
        """Return whether ingest has read the topics of the sources up to these offsets."""
        if self.view is None:
            return False
        for name, source in self.plan.topology.own_sources.items():
            for task in self.view.tasks(ingest_scope(name)):
                partition = int(task.rpartition(".")[2])
                place = TopicPartition(source.topic, partition)
                read = self.view.of(task).resume.get(place, 0)
                if read < sent.get((source.topic, partition), 0):
                    return False
        return True

    def _has_followed(self, written: Mapping[str, int]) -> bool:
        """Return whether bound sources are read up to these epochs of the network above."""
        return self.view is not None and all(
            (pairs := self.view.of(task).bound) and pairs[-1][1] >= epoch
            for source, epoch in written.items()
            for task in self.view.tasks(ingest_scope(source))
        )

    def _written_above(self) -> dict[str, int]:
        """Return the last epoch in which the arc of each bound source was written."""
        assert self.above is not None
        view, plan = self.above._known_view(), self.above.plan
        return {
            source.arc.name: max(
                view.of(task).ends.get(place, (0, NEVER))[1]
                for number in range(plan.placement.partitions[source.bound_to[1]])
                for place in (TopicPartition(source.topic, number),)
                for task in view.writers(source.bound_to[1], number)
            )
            for sources in self.plan.topology.upstreams.values()
            for source in sources
        }

    def frontier(self) -> int:
        """Return the last epoch that no task can produce any more; -2 if it is not known."""
        view = self.view
        if view is None:
            return -2
        scopes = self.plan.topology.scopes
        return min(view.frontier(task) for scope in scopes for task in view.tasks(scope))

    def processed(self) -> Callable[[], bool]:
        """Return a condition: all that has been sent by now is processed.

        That is so in the networks above, too.
        """
        sent, goal = dict(self.feed.sent), list[int]()
        is_above, written = None if self.above is None else self.above.processed(), dict[str, int]()

        def has_read() -> bool:
            if is_above is None:
                return self.has_read(sent)
            if not written and is_above():
                written.update(self._written_above())
            return bool(written) and self._has_followed(written)

        def holds() -> bool:
            if not goal and has_read() and self.view is not None:
                goal.append(self.view.newest_epoch())
            return bool(goal) and self.frontier() >= goal[0]

        return holds

    def behind(self) -> str:
        """Return how far every task is, for an error."""
        return "; ".join(network._behind() for network in self.together)

    def _behind(self) -> str:
        view = self.view
        if view is None:
            return "no broker answers"
        lines = [
            f"{task}: frontier {view.frontier(task)}, done {report.done}, attempt {report.attempt}"
            for task in self.tasks()
            for report in (view.of(task),)
        ]
        return "; ".join([f"newest epoch {view.newest_epoch()}", *lines, f"sent {self.feed.sent}"])

    def end(self) -> None:
        """Declare that all sources end; those that are bound do so with what is above."""
        cluster = KafkaCluster(self.feed_settings)
        for network in self.together:
            for source in network.plan.topology.own_sources:
                declare_end(cluster, network.plan, source)
        cluster.close()

    def has_ended(self) -> bool:
        """Return whether ingest has read the ends of the sources."""
        return all(network._has_ended() for network in self.together)

    def _has_ended(self) -> bool:
        view = self.view
        return view is not None and all(
            (pairs := view.of(task).watermarks) and pairs[-1][1] == FOREVER
            for source in self.plan.topology.sources
            for task in view.tasks(ingest_scope(source))
        )

    def close(self) -> None:
        """End the processes of all networks that run together."""
        for network in self.together:
            network.processes.stop()
            network._drop_view()
