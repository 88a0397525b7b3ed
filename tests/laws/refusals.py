"""Compares what boxes refuse with the dead letters."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.laws.audit import Audit
from tests.laws.failing import ALL, FailingShape, failing_shape, is_told
from tests.laws.oracle import Content, Tuple
from tests.laws.simulation import Simulation
from tests.laws.tape import Tape

AWAY_ROUNDS = 20


class AwayJob(Simulation):
    """The other processes continue before a job comes back, sometimes without its states."""

    def _second_act(self, tapes: dict[str, Tape]) -> None:
        super()._second_act(tapes)
        others = [n for n, p in enumerate(self.processes) if p.kind.what != "spark"]
        for place in others:
            self._restart(place)
        for _ in range(AWAY_ROUNDS):
            for place in others:
                for turn in range(len(self.processes[place].actors)):
                    self._advance(place, turn)
            self.now += 500


class FailingAudit(Audit):
    """The laws, and: each refused tuple is a dead letter, once for each time that it enters."""

    def _begin(self) -> None:
        assert isinstance(self.simulation.shape, FailingShape)
        self.shape = self.simulation.shape
        self.results: dict[str, Content] = defaultdict(dict)
        self.due, self.allowed = Counter[Any](), set[Any]()
        self.wanted, self.last = Counter[Any](), dict[str, Content]()
        self.of_job = self.plan.topology.scopes["job"].boxes if self.plan.topology.spark else ()
        batches = {report["done"] for report in self.reports.get("job.0", [])} - {-1}
        self.ends = sorted(batches, reverse=True)

    def _saw(self, epoch: int) -> None:
        """Record what is refused."""
        self._job_ended(before=epoch)
        self.last = self.contents
        self._untold(epoch, [name for name in self.shape.untold if name not in self.of_job])

    def _job_ended(self, *, before: int = 2**62) -> None:
        """Record what the job refuses in batches that end before an epoch."""
        while self.ends and self.ends[-1] < before:
            epoch = self.ends.pop()
            for box in self.of_job:
                arc = self.plan.boxes[box].inputs[0]
                old, new = self.results[f"{box}.in"], self.last.get(arc, {})
                for identity, after in new.items():
                    if after != old.get(identity) and self.shape.fails[box](after):
                        partition = self._partition(arc, after, self.plan.placement.partitions[arc])
                        self.wanted[box, epoch, partition, _plain(after)] += 1
                self.results[f"{box}.in"] = new
            self._untold(epoch, [name for name in self.shape.untold if name in self.of_job])

    def _untold(self, epoch: int, names: list[str]) -> None:
        """Record the refused results, and those of them that are new or changed."""
        for name in names:
            now, before = self.last.get(name + ALL, {}), self.results[name]
            for identity, result in now.items():
                if not is_told(result):
                    changed = before.get(identity) != result
                    self.due[name, epoch, identity] += changed
                    if changed or name not in self.shape.exact:
                        self.allowed.add((name, epoch, identity))
            self.results[name] = now

    def _letters_of_boxes(self) -> None:
        """Compare the dead letters with the refused tuples and results of boxes."""
        self._job_ended()
        tuples, results = Counter[Any](), Counter[Any]()
        for letter in self.letters:
            if letter["offset"] >= 0:
                continue
            told = re.match(r"box '(\w+)', epoch (\d+): function .*", letter["detail"])
            if told is None or int(told[2]) != letter["epoch"]:
                self.found["L6"].append(f"this says not what, where and when: {letter}")
                continue
            box, epoch = told[1], letter["epoch"]
            identity = tuple(self.history.decode(letter["key"]).values())
            if letter["value"] is None:
                results[box, epoch, identity] += 1
                continue
            after = self.history.decode(letter["value"])["after"]
            tuples[box, epoch, letter["partition"], _plain(after)] += 1
            self.seen[f"refused by {box}"] += 1
        wanted = self.wanted + Counter(
            (box, revision["epoch"], partition, _plain(revision["after"]))
            for box, fails in self.shape.fails.items()
            if box not in self.of_job
            for partition, own in enumerate(self.revisions[self.plan.boxes[box].inputs[0]])
            for revision in own
            if revision["after"] is not None and fails(revision["after"])
        )
        for what in ((wanted - tuples) + (tuples - wanted)).elements():
            where = "no letter of" if what in wanted else "a letter of"
            self.found["L6"].append(f"{where} {what}")
        self.seen["untold"] += results.total()
        self.seen["untold of jobs"] += sum(results[what] for what in results if what[0] == "job")
        self.seen["untold of rows"] += sum(results[what] for what in results if "rows" in what[0])
        twice = [what for what, number in results.items() if number > 1]
        wrong = results.keys() - self.allowed
        missing = +self.due - results
        for how, these in (("twice", twice), ("wrong", wrong), ("missing", missing)):
            for what in these:
                self.found["L6"].append(f"a letter of a result is {how}: {what}")


def _plain(t: Tuple) -> str:
    return str(sorted(t.items()))


def trial(
    seed: int, folder: Path, *, ticks: int = 20, spark: bool = False
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Run the network of a seed; return the violations by law, and the events that occurred."""
    shape = failing_shape(seed, spark=spark)
    scenario = AwayJob if spark else Simulation
    simulation = scenario(shape, seed=seed, folder=folder, ticks=ticks)
    try:
        simulation.run()
        audit = FailingAudit(simulation)
    except Exception as error:
        raise AssertionError(f"Progress: a process died of itself: {error}") from error
    finally:
        simulation.close()
    return dict(audit.found), simulation.seen
