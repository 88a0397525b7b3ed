"""Recomputes ingest, epoch by epoch, from the source records (L6)."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from errata.schemas.partition import partitions
from tests.laws.envelopes import PASSED, read
from tests.laws.oracle import FOREVER, IDLE, NEVER, Tuple
from tests.laws.simulation import Simulation
from tests.laws.sources import Intake, Owners, Passing

Findings = dict[str, list[str]]
Report = dict[str, Any]
Letter = tuple[str, int, int, str]  # task, partition, offset, reason


class IntakeAudit:
    """Checks dead letters and watermarks; `arrived` has the changes of sources' arcs by epoch.

    Args:
        simulation: A finished simulation.
        reports: The reports by task.
        letters: The committed dead letters; those of boxes are ignored.
        found: Gets the violations, by law.
    """

    def __init__(
        self,
        simulation: Simulation,
        reports: dict[str, list[Report]],
        letters: list[Report],
        found: Findings,
    ) -> None:
        self.simulation, self.reports, self.found = simulation, reports, found
        self.pairs: list[dict[int, int]] = []
        self.lowered = set[int]()
        self.arrived: dict[int, dict[tuple[str, str], Tuple | None]] = defaultdict(dict)
        self.refused = Counter[Letter]()
        keep, lateness = simulation.shape.keep, simulation.shape.lateness
        for source, tape in simulation.tape.items():
            known = simulation.plan.topology.sources[source]
            rekey = known.rekey or known.on_spark  # a job divides records by identity, too
            passed: dict[int, list[tuple[int, int, Any, int]]] = defaultdict(list)
            for partition, records in enumerate(tape):
                intake = (Passing if rekey else Intake)(keep, lateness, self._reach(source))
                envelope = simulation.plan.topology.sources[source].envelope
                told = [read(record, envelope) for record in records]
                for epoch in self._take(intake, source, partition, told):
                    if isinstance(intake, Passing):
                        passed[epoch] += [(partition, *one) for one in intake.passed]
                task = f"ingest.{source}.{partition}"
                self.refused.update((task, partition, *one) for one in intake.refused.items())
            if rekey:
                self._own(source, passed)
        self._compare(
            Counter(
                (letter["task"], letter["partition"], letter["offset"], letter["reason"])
                for letter in letters
                if letter["offset"] >= 0
            )
        )

    def _take(self, intake: Intake, source: str, partition: int, lines: list[Any]) -> Iterator[int]:
        """Take all lines of a partition as its task reported them; yield each epoch.

        Of a job the first task tells what it has taken of all partitions.
        """
        at, task = 0, f"ingest.{source}.{partition}"
        told = {p["epoch"]: p["watermark"] for r in self.reports[task] for p in r["watermarks"]}
        self.pairs.append(told)
        lowered = set[int]()
        put_back = {
            r["counts"]["lowered_epoch"]
            for r in self.reports[task]
            if "lowered_epoch" in r["counts"]
        }
        is_of_job = self.simulation.plan.topology.sources[source].on_spark
        for report in self.reports[f"ingest.{source}.0" if is_of_job else task]:
            own = (at for at in report["resume"] if at["partition"] == partition)
            end = max((at["offset"] for at in own), default=0)
            epoch = report["done"]
            known = told[max(passed)] if (passed := [e for e in told if e <= epoch]) else NEVER
            if epoch in put_back - lowered:
                lowered.add(epoch)
                if not intake.newest > self.simulation.put_back[source]:
                    self.found["L1"].append(f"{task} epoch {epoch}: was not ahead, but put back")
                intake.newest = self.simulation.put_back[source]
            if end > at:
                held = dict(intake.held)
                intake.take([(n, lines[n]) for n in range(at, end) if lines[n] != PASSED])
                if not isinstance(intake, Passing):
                    self._changed(epoch, source, held, intake.held)
                yield epoch
                at = end
                if known not in (intake.newest, FOREVER):
                    self.found["L1"].append(
                        f"{task} epoch {epoch}: watermark {known}, should be {intake.newest}"
                    )
            elif known not in (intake.newest, FOREVER, IDLE):
                self.found["L1"].append(f"{task} epoch {epoch}: watermark {known} out of nothing")
        if at < len(lines):
            self.found["Progress"].append(f"{task} stopped at record {at} of {len(lines)}")
        self.lowered |= lowered

    def _changed(
        self, epoch: int, source: str, before: dict[str, Tuple], after: dict[str, Tuple]
    ) -> None:
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key):
                self.arrived[epoch][source, key] = after.get(key)

    def _own(self, source: str, passed: dict[int, list[tuple[int, int, Any, int]]]) -> None:
        """Take the records that were passed on to owners, epoch by epoch."""
        owners = Owners(
            self.simulation.shape.keep,
            lambda key: int(partitions([bytes([2 * len(key)]) + key.encode()], count)[0]),
            self._reach(source),
        )
        for epoch in sorted(passed):
            count = self.simulation.owners(source, epoch)
            held = dict(owners.held)
            owners.take(passed[epoch])
            self._changed(epoch, source, held, owners.held)
        if self.simulation.plan.topology.sources[source].on_spark:
            letters = {(f"ingest.{source}.{rest[0]}", *rest) for _, *rest in owners.refused}
        else:
            letters = {(f"{source}-owner.{number}", *rest) for number, *rest in owners.refused}
        self.refused.update(letters)

    def _reach(self, source: str) -> int | None:
        return self.simulation.plan.reach_ms.get(source)

    def _compare(self, told: Counter[Letter]) -> None:
        for letter in (told - self.refused).elements():
            self.found["L6"].append(f"dead letter {letter} is twice or wrong")
        for letter in (self.refused - told).elements():
            self.found["L6"].append(f"no dead letter {letter}")
