"""One seed of the campaign: a network under load, faults at random moments, and the comparison."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

from errata.schemas.errors import ErrataError
from errata.topics.kafka import KafkaCluster
from tests.faults import compare
from tests.faults.brokers import CLEANER
from tests.faults.clusters import Cluster, one_broker, three_brokers
from tests.faults.compare import Difference
from tests.faults.feed import FeedError
from tests.faults.machine_faults import MACHINE_FAULTS
from tests.faults.process_faults import PROCESS_FAULTS
from tests.faults.processes import Journal
from tests.faults.recompute import FOREVER, Content, watermark
from tests.faults.running import FED, RECOVER_S, Running, StuckError
from tests.faults.three_faults import THREE_FAULTS
from tests.faults.wire_faults import WIRE_FAULTS

START_S, END_S = 240.0, 240.0
LONGEST_GAP_S = 4.0
BURSTS = (1, 10, 20, 20, 20, 40, 40, 40)
"""Ticks that are sent together. Sent one by one, they keep two cores busy: all waits are long."""
INTERVALS = ("50ms", "50ms", "200ms")
"""Of epochs."""
OVERLAP = 0.3
"""The share of faults after which the next one comes before the network has recovered."""
AGREED_S, RESTORED_S = 5.0, 60.0
"""How long results may take to agree: lost records are noticed now and then only."""

OF_ONE = PROCESS_FAULTS | MACHINE_FAULTS | WIRE_FAULTS
OF_THREE = {
    kind: fault
    for kind, fault in (PROCESS_FAULTS | MACHINE_FAULTS | THREE_FAULTS).items()
    if kind not in {"broker-kill", "broker-pause", "lose-records"}
}
FAULTS = OF_ONE | OF_THREE
"""What happens at a moment, by kind."""
OVER = "desks"
"""The network that is bound to arcs of `fills`."""
CLEANED = "cleaner"
"""The kind that lasts for the whole seed: compaction runs by the second, in every other one."""

Say = Callable[[str], None]


@dataclass
class Outcome:
    """What became of a seed.

    Args:
        seed: The seed.
        network: The network that ran.
        caused: How many faults of each kind took effect.
        recovery_s: How long the network took to recover from each, by kind.
        differences: What differs from what must be.
        complaints: What processes said or did that they must not.
        seconds: How long it took.
        records: How many records were fed.
        ends: How processes have ended.
        commit: The commit of the code.
        brokers: How many brokers there were.
        spark: Whether the network had an aggregate on Spark.
        composed: Whether `OVER` was bound to arcs of the network.
    """

    seed: int
    network: str
    caused: Counter[str] = field(default_factory=Counter)
    recovery_s: dict[str, list[float]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    seconds: float = 0.0
    records: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    commit: str = ""
    brokers: int = 1
    spark: bool = False
    composed: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs and nobody complained."""
        return not self.differences and not self.complaints


def planned(kinds: Sequence[str], *, faults: int, seed: int) -> list[str]:
    """Return the kinds of a seed's faults, so that following seeds have all kinds in turn."""
    first = seed * faults
    return [kinds[number % len(kinds)] for number in range(first, first + faults)]


def run_seed(
    seed: int,
    *,
    kinds: Sequence[str],
    faults: int,
    minutes: float,
    keep: Path,
    say: Say,
    spark: bool = False,
    three: bool = False,
    composed: bool = False,
    overlap: float = OVERLAP,
) -> Outcome:
    """Run one seed.

    Args:
        seed: Draws everything.
        kinds: The kinds of faults.
        faults: How many faults there are.
        minutes: The least time under load.
        keep: A folder for the journal of what the processes said.
        say: Shows what happens.
        spark: Whether the network has an aggregate on Spark.
        three: Whether there are three brokers.
        composed: Whether another network is bound to arcs of the one that is fed.
        overlap: The share of faults after which the next one comes before the network recovers.
    """
    chance = Random(seed)
    network = "fills" if spark or composed else list(FED)[seed % len(FED)]
    outcome = Outcome(seed, network, brokers=3 if three else 1, spark=spark, composed=composed)
    began = monotonic()
    order = planned([kind for kind in kinds if kind != CLEANED], faults=faults, seed=seed)
    chance.shuffle(order)
    is_apart = seed // (2 * len(FED)) % 2 == 0
    most = 1 if seed // (4 * len(FED)) % 2 == 0 else None
    is_cleaned = not three and CLEANED in kinds and seed // len(FED) % 2 == 1
    journal = Journal(keep / f"seed-{seed}.log")
    overrides = CLEANER if is_cleaned else {}
    environ = {"ERRATA_TOPICS__COMPACTION_LAG": "10s"} if is_cleaned else {}
    environ |= {"ERRATA_EPOCHS__INTERVAL": chance.choice(INTERVALS)}
    is_proxied = not WIRE_FAULTS.keys().isdisjoint(order)
    brokers = one_broker(proxied=is_proxied, seed=seed, overrides=overrides)
    if three:
        brokers = three_brokers(seed=seed)
    with (
        brokers as cluster,
        tempfile.TemporaryDirectory(prefix="errata-faults-") as name,
        chdir(name),  # so that no errata.toml of the user applies
    ):
        options = {
            "settings": cluster.settings, "feed_settings": cluster.beside, "folder": Path(name),
            "chance": Random(seed), "journal": journal, "environ": environ, "apart": is_apart,
            "most": most,
        }  # fmt: skip
        on = Running(network, spark=spark, **options)
        on.feed.burst = Random(seed).choice(BURSTS)
        try:
            on.processes.start()
            on.until(on.has_started, limit_s=START_S, what="start")
            if composed:
                on = Running(OVER, above=on, **options)
                on.processes.start()
                on.until(on.has_started, limit_s=START_S, what="start")
            _play(on, cluster, order, chance, outcome, minutes=minutes, say=say, overlap=overlap)
            if is_cleaned:
                outcome.caused[CLEANED] += cluster.cleaned()
            _finish(on, outcome, whole=not is_cleaned, say=say)
        except (StuckError, FeedError, ErrataError, AssertionError) as error:
            journal.note(f"campaign: {type(error).__name__}: {error}")
            outcome.complaints.append(f"{type(error).__name__}: {error}")
        finally:
            on.close()
    outcome.complaints += journal.complaints
    outcome.seconds, outcome.records = monotonic() - began, on.feed.count
    outcome.ends = dict(journal.ends)
    journal.close()
    if outcome.is_clean:
        journal.file.unlink()
    return outcome


def _play(
    on: Running,
    cluster: Cluster,
    order: Sequence[str],
    chance: Random,
    outcome: Outcome,
    *,
    minutes: float,
    say: Say,
    overlap: float,
) -> None:
    """Feed the network and cause faults."""
    began = monotonic()
    on.pause(3.0)
    for kind in order:
        on.pause(chance.uniform(0, LONGEST_GAP_S))
        on.journal.note(f"fault {kind}")
        done = FAULTS[kind](chance.choice(on.together), cluster, chance)
        on.journal.note(f"fault {kind}: {done}")
        say(f"{kind}: {done}")
        outcome.caused[kind] += done is not None
        if done is not None and chance.random() >= overlap:
            taken = on.until(on.processed(), limit_s=RECOVER_S, what=f"recover from {kind}")
            on.journal.note(f"recovered from {kind} after {taken:.1f} s")
            outcome.recovery_s.setdefault(kind, []).append(taken)
    on.until(lambda: monotonic() >= began + minutes * 60, limit_s=minutes * 60 + 1, what="wait")


def _finish(on: Running, outcome: Outcome, *, whole: bool, say: Say) -> None:
    """Let the network process everything, and compare; then end its sources, and compare."""
    on.feed.is_on = False
    on.feed.flush(limit_s=END_S)
    on.until(on.processed(), limit_s=END_S, what="process all that was fed")
    closed_ms = watermark(on.tapes)
    outcome.differences += compared(on, closed_ms, whole=whole, when="at rest", say=say)
    on.end()
    on.until(on.has_ended, limit_s=END_S, what="read the ends of its sources")
    on.until(on.processed(), limit_s=END_S, what="process the ends of its sources")
    outcome.differences += compared(on, FOREVER, whole=whole, when="at the end", say=say)


def compared(on: Running, closed_ms: int, *, whole: bool, when: str, say: Say) -> list[str]:
    """Return what differs from what must be; lost records are written again after a while."""
    say(f"compares {when}")
    wanted = [n.kind.contents(n.tapes, closed_ms=closed_ms, **n.options) for n in on.together]
    has_lost = any(network.lost for network in on.together)
    deadline = monotonic() + (RESTORED_S if has_lost else AGREED_S)
    while True:
        found = [
            each
            for network, contents in zip(on.together, wanted, strict=True)
            for each in _differences(network, contents, whole=whole)
        ]
        if not found or monotonic() > deadline:
            break
        on.pause(1.0)
    if found:
        for network in on.together:
            _note_evidence(network)
    for each in found:
        on.journal.note(f"differs {when}: {each}")
    return [f"{when}: {each}" for each in found]


def _note_evidence(on: Running) -> None:
    """Write what the arcs' topics hold to the journal: they go with the brokers."""
    cluster = KafkaCluster(on.feed_settings)
    for arc in on.plan.topology.topics:
        for line in compare.evidence(cluster, on.plan, arc):
            on.journal.note(line)
    cluster.close()


def _chained(on: Running, arcs: Iterable[str]) -> list[str]:
    """Leave out arcs whose tuples move between partitions, if one of these has lost records.

    A move has a record in each: what is left of it follows no other, whatever is written later.
    """
    known = on.plan.topology.arcs
    moving = {arc for arc in arcs if not {*known[arc].partition_by} <= {*known[arc].identity}}
    return [arc for arc in arcs if arc not in moving & on.lost]


def _differences(on: Running, wanted: dict[str, Content], *, whole: bool) -> list[Difference]:
    cluster = KafkaCluster(on.feed_settings)
    topics = on.plan.topology.topics  # an arc without one goes to its sink alone
    arcs = {arc: content for arc, content in wanted.items() if arc in topics}
    try:
        return [
            *compare.arcs(on.net, on.feed_settings, arcs),
            *compare.chains(cluster, on.plan, _chained(on, arcs), whole=whole),
            *compare.sinks(on.net, on.feed_settings, wanted),
            *compare.dead_letters(cluster, on.plan, on.feed.bad if on.above is None else ()),
        ]
    finally:
        cluster.close()
