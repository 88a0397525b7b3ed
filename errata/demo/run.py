"""`errata demo`: a real tape with real corrections on a real broker, in both modes, audited.

The network runs as under `errata up`, and Spark's job in a process of its own; so does the ticker,
which acts as a user's producer. All of them end with the demo, however it ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from errata.demo import ticker
from errata.demo.audit.verdict import Verdict, audit
from errata.demo.screen import Screen, print_summary
from errata.demo.watch import BARS, DOWNSTREAM, TRADES, UPSTREAM, Correction, Watch
from errata.deploy.deployment import prepare
from errata.page import PORT
from errata.processors.plan.deployed import declare_end
from errata.processors.plan.plan import Plan
from errata.processors.plan.topology import ingest_scope
from errata.processors.wire.report import FOREVER
from errata.run.supervisor import Supervisor, network_commands, page_command
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from errata.settings.place import Place
from errata.spark_jobs.session import SparkMissingError, check_java, check_packages
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker, is_free
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec

INTRODUCTION = """\
Credit default swaps of 15 July 2026 as they were published, with their cancels and corrections
(DTCC Data Repository (US) LLC, public price dissemination; see errata/demo/data/ATTRIBUTION).
What is traded per product and currency, in windows of 30 minutes every 20: errata/demo/tape.py.
"""
PARTITIONS = 4
START_LIMIT_S, END_LIMIT_S = 180.0, 180.0
_TICK_S = 0.1


class DemoError(ErrataError):
    """The demo can't continue."""


class Stage:
    """The running network of the demo: its broker, its processes, and readers of its results.

    Args:
        broker: A running broker.
        state: Folder for local state.
        say: Writes lines of the processes.
        spark: Whether there are bars on Spark.
        spark_options: Options for `errata spark`.
        reference: The network to run in place of the demo's: it has the same arcs.
        apart: Whether each scope has a process of its own.
        page: The port of the page; None: no page.
    """

    def __init__(
        self,
        broker: EmbeddedBroker,
        *,
        state: Path,
        say: Callable[[str], None],
        spark: bool = False,
        spark_options: Sequence[str] = (),
        reference: str = "",
        apart: bool = False,
        page: int | None = None,
    ) -> None:
        self.broker, self.spark = broker, spark
        reference = reference or f"errata.demo.{'bars' if spark else 'tape'}:net"
        create_topics(broker.settings, [TopicSpec(ticker.TOPIC, PARTITIONS)])
        self.cluster = KafkaCluster(broker.settings)
        place = Place(broker.settings, state)
        self.plan: Plan = prepare(load(reference), place, self.cluster)
        self.environ = environment(broker.bootstrap_servers, state=state)
        commands = network_commands(reference, self.plan, spark=spark_options, apart=apart)
        pages = {} if page is None else page_command(reference, page, commands)
        self.supervisor = Supervisor(
            commands | pages, environ=self.environ, say=say, optional=pages
        )
        self.watch = Watch(self.cluster, self.plan)
        self.bars = Watch(self.cluster, self.plan, results=BARS, live=True) if spark else None

    def not_started(self) -> list[str]:
        """Return the tasks that have not started yet."""
        scopes = self.plan.topology.all_scopes
        tasks = [task for scope in scopes for task in self.watch.view.tasks(scope)]
        return [task for task in tasks if not self.watch.view.of(task).attempt]

    @contextmanager
    def ticker(self, *, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
        """Play the tape in a separate process."""
        command = [sys.executable, "-m", "errata.demo.ticker", f"--seconds={seconds}"]
        process = subprocess.Popen(
            [*command, "--bootstrap", self.broker.bootstrap_servers],
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the parent handles Ctrl-C
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def end(self) -> None:
        """Declare that the tape ends."""
        declare_end(self.cluster, self.plan, TRADES)

    def behind(self) -> list[str]:
        """Return the tasks that have not processed the end yet, and their frontiers."""
        watermarks = [
            self.watch.view.of(t).watermarks for t in self.watch.view.tasks(ingest_scope(TRADES))
        ]
        if not all(pairs and pairs[-1][1] == FOREVER for pairs in watermarks):
            return ["ingest, which has not read the end"]
        return self.watch.behind(max(pairs[-1][0] for pairs in watermarks))

    def corrections(self) -> list[Correction]:
        """Return the corrections that have become complete since the last call."""
        return self.watch.poll() + (self.bars.poll() if self.bars is not None else [])

    def progress(self) -> str:
        """Return the progress as a line."""
        counts = self.watch.counts()
        progress = {
            "records": counts.get("read", 0),
            "windows closed": counts.get(f"{UPSTREAM}.closed", 0),
            "corrected upstream": counts.get(f"{UPSTREAM}.revised", 0),
            "downstream": counts.get(f"{DOWNSTREAM}.revised", 0),
            "dead letters": counts.get("dead_letters", 0),
        }
        return "   ".join(f"{count:,} {name}" for name, count in progress.items())

    def close(self) -> None:
        """End the processes."""
        self.supervisor.stop()
        self.watch.close()
        if self.bars is not None:
            self.bars.close()
        self.cluster.close()


def environment(bootstrap: str, *, state: Path) -> dict[str, str]:
    """Return the environment of the demo's processes: this process's, without its settings."""
    project_root = Path(__file__).parents[2]
    kept = {n: v for n, v in os.environ.items() if not (n.startswith("ERRATA_") and "__" in n)}
    kept.pop("SCHEMA_REGISTRY_URL", None)
    return kept | {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "ERRATA_STATE": str(state),
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(project_root), os.environ.get("PYTHONPATH")])
        ),
    }


@contextmanager
def stage(
    say: Callable[[str], None],
    *,
    spark: bool = False,
    spark_options: Sequence[str] = (),
    reference: str = "",
    apart: bool = False,
    page: int | None = None,
) -> Iterator[Stage]:
    """Set up broker and network (see `Stage`) in a temporary folder; remove them afterwards."""
    with (
        EmbeddedBroker() as broker,
        tempfile.TemporaryDirectory(prefix="errata-demo-") as folder,
        chdir(folder),  # so that no errata.toml of the user applies
    ):
        running = Stage(
            broker,
            state=Path(folder),
            say=say,
            spark=spark,
            spark_options=spark_options,
            reference=reference,
            apart=apart,
            page=page,
        )
        try:
            yield running
        finally:
            running.close()


def run(on: Stage, screen: Screen, *, seconds: float) -> Verdict:
    """Play the tape to its end, show the progress, and audit the results.

    Raises:
        DemoError: If a process does not keep up, or the ticker fails.
    """
    on.supervisor.start()
    await_until(on, lambda: on.not_started(), limit_s=START_LIMIT_S, what="start")
    screen.say(f"{PARTITIONS} partitions, {len(on.supervisor.pids)} processes; the tape plays:")
    with screen:
        with on.ticker(seconds=seconds) as playing:
            while playing.poll() is None:
                _Signals.check()
                on.supervisor.poll()
                screen.show(on.progress(), on.corrections())
                sleep(_TICK_S)
            if playing.returncode:
                raise DemoError(f"the ticker failed: {playing.communicate()[1].decode()}")
        on.end()

        def unfinished() -> list[str]:
            screen.show(on.progress(), on.corrections())
            return on.behind()

        await_until(on, unfinished, limit_s=END_LIMIT_S, what="process the tape to its end")
        screen.show(on.progress(), on.corrections())
    return audit(on.broker.settings, spark=on.spark)


def await_until(on: Stage, missing: Callable[[], list[str]], *, limit_s: float, what: str) -> None:
    """Wait until nothing is missing.

    Raises:
        DemoError: If that takes too long; the message names what is missing.
    """
    deadline = monotonic() + limit_s
    while True:
        _Signals.check()
        on.supervisor.poll()
        on.watch.view.poll()
        remaining = missing()
        if not remaining:
            return
        if monotonic() > deadline:
            raise DemoError(f"the demo did not {what} within {limit_s:g} s: {', '.join(remaining)}")
        sleep(_TICK_S)


def check_spark() -> None:
    """Check that Spark can run on this machine.

    Raises:
        DemoError: If it can't run.
    """
    try:
        check_packages()
        check_java()
    except SparkMissingError as error:
        raise DemoError(f"{error}; or run: errata demo --no-spark") from error


class _Signals:
    """Ends the demo on a signal, also if it came inside a callback of C, where errors are lost."""

    status = 0

    @classmethod
    def handle(cls, number: int, frame: FrameType | None) -> None:
        cls.status = 128 + number
        raise SystemExit(cls.status)

    @classmethod
    def check(cls) -> None:
        if cls.status:
            raise SystemExit(cls.status)


def main(*, fast: bool = False, spark: bool = True, ui: bool = True) -> int:
    """Run the demo.

    Args:
        fast: Play the tape in 12 s, not at a watchable pace.
        spark: Whether there are bars on Spark.
        ui: Whether to serve its page; on a terminal it stays until Ctrl-C.

    Returns:
        0 if the audit finds no differences and the modes agree.
    """
    screen = Screen()
    screen.say(INTRODUCTION)
    _Signals.status = 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _Signals.handle)
    if spark:
        check_spark()
    screen.say(f"starting an embedded Kafka broker{', and Spark' if spark else ''}")

    def print_line(line: str) -> None:
        if not line.startswith("started "):
            screen.say(line)

    page = (PORT if is_free(PORT) else 0) if ui else None
    with stage(print_line, spark=spark, page=page) as on:
        verdict = run(on, screen, seconds=ticker.FAST_S if fast else ticker.WATCHABLE_S)
        print_summary(screen.console, on.watch, verdict)
        if ui and screen.console.is_terminal and sys.stdin.isatty():
            screen.say("the page stays until Ctrl-C")
            with suppress(SystemExit):
                while True:
                    _Signals.check()
                    on.supervisor.poll()
                    sleep(_TICK_S)
    return 0 if verdict.clean else 1
