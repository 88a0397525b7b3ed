"""Plants bugs, one at a time, and checks that a law kills each: ``make mutants``.

A mutant is one changed line that still passes the type checker and figure 1. It is killed if a law
(`tests/laws`) fails; the table names the law. One that no law can see names the tests that must
fail. The command fails if a mutant survives, does not type-check, or fails figure 1. All of them
take a good half hour on two cores: ``make mutants SHARE=1/4`` judges every fourth one, from the
first on.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import track

from tests.mutants.mutant import (
    AWAY,
    COMPOSED,
    FAILING,
    IDLE,
    LOSING,
    ON_SPARK,
    PLACED,
    POISONED,
    RANDOM,
    TRIMMED,
    WITH_JOINS,
    WITH_LOOPS,
    WITH_ROWS,
    Mutant,
)
from tests.mutants.planted import MUTANTS

ROOT = Path(__file__).parents[2]
EXAMPLES, MORE, NETWORKS = 40, 80, 100
"""Scenarios per network, of the laws on faults of a kind, and random networks; some bugs need more
than the few of `make test`."""
COPIES = 2
"""The number of mutants that are judged at the same time."""
LIMIT_S = 1800
LAWS, RANDOM_LAWS = ["tests/laws/test_laws.py"], ["tests/laws/test_random_networks.py"]
ELSEWHERE = {
    FAILING: "tests/laws/test_failing.py",
    IDLE: "tests/laws/test_idle.py",
    TRIMMED: "tests/laws/test_trimmed.py",
    LOSING: "tests/laws/test_lost_records.py",
    AWAY: "tests/laws/test_outages.py",
    POISONED: "tests/laws/test_put_back.py",
    COMPOSED: "tests/laws/test_composed.py",
}
ROW = "{:<10} {:>5}  {:<10} {}"
"""A row of the table: the law, seconds, networks, and the mutant's name."""
A_TEST, AN_ERROR = "a test", "an error"
FOUND = re.compile(r"^E .*?\b(L[1-8]|Progress)\b", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Args:
        mutant: The mutant.
        law: The law that kills it, or `A_TEST`; `AN_ERROR` if a process dies of it in a law's run;
            None if nothing does.
        why: Why no law kills it.
        seconds: How long it took to judge it.
    """

    mutant: Mutant
    law: str | None
    why: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return the row of the table."""
        name = self.mutant.name if self.law else f"{self.mutant.name}: {self.why}"
        law = self.law or "NO LAW"
        where = "" if self.mutant.tests else self.mutant.network
        return ROW.format(law, round(self.seconds), where, name)


def copy(target: Path) -> None:
    """Copy the files that git tracks, and new ones that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def run(where: Path, *command: str, examples: int = EXAMPLES) -> subprocess.CompletedProcess[str]:
    """Run a command in the copy."""
    environment = os.environ | {"PYTHONPATH": str(where), "ERRATA_REQUIRE": ""}
    environment |= {"ERRATA_LAWS_EXAMPLES": str(examples)}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=where, env=environment, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


def judge(mutant: Mutant, where: Path) -> Verdict:
    """Plant the bug in a copy, and return which law kills it, or what happened instead."""
    path = where / mutant.file
    source = path.read_text()
    if source.count(mutant.old) != 1:
        return Verdict(mutant, None, f"its line is {source.count(mutant.old)} times in its file")
    started = time.monotonic()

    def verdict(law: str | None, why: str = "") -> Verdict:
        return Verdict(mutant, law, why, time.monotonic() - started)

    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        types = run(where, "mypy", "--no-error-summary")
        if types.returncode:
            return verdict(None, "does not type: " + types.stdout.splitlines()[0])
        figure = run(where, "pytest", "-q", "-x", "tests/test_figure_1.py")
        if figure.returncode:
            return verdict(None, "fails figure 1 already")
        command, examples = laws_of(mutant)
        laws = run(where, "pytest", "-q", "-x", *command, examples=examples)
        if laws.returncode == 0:
            return verdict(None, "survives")
        if mutant.tests and laws.returncode == 1:
            return verdict(A_TEST)
        if laws.returncode != 1:
            return verdict(None, "the laws can't be run")
        found = FOUND.search(laws.stdout)
        return verdict(found[1] if found else AN_ERROR)
    except subprocess.TimeoutExpired:
        return verdict(None, "comes to no end")
    finally:
        path.write_text(source)


def laws_of(mutant: Mutant) -> tuple[list[str], int]:
    """Return the tests that must kill a mutant, and the number of the laws' examples."""
    if mutant.tests:
        return [mutant.tests], EXAMPLES
    kinds = (ON_SPARK, WITH_JOINS, WITH_ROWS, WITH_LOOPS, PLACED)
    if mutant.network in (RANDOM, *kinds):
        plain = " and ".join(f"not {kind}" for kind in kinds)
        return [*RANDOM_LAWS, "-k", plain if mutant.network == RANDOM else mutant.network], NETWORKS
    if mutant.network in ELSEWHERE:
        return [ELSEWHERE[mutant.network]], MORE
    return [*LAWS, "-k", mutant.network], EXAMPLES


def verdicts(chosen: Sequence[Mutant]) -> Iterator[Verdict]:
    """Judge mutants, `COPIES` at a time; yield each verdict as soon as it is known."""
    with tempfile.TemporaryDirectory(prefix="errata-mutants-") as folder:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(COPIES):
            where = Path(folder, str(number))
            copy(where)
            free.put(where)

        def judged(mutant: Mutant) -> Verdict:
            where = free.get()
            try:
                return judge(mutant, where)
            finally:
                free.put(where)

        with ThreadPoolExecutor(COPIES) as pool:
            for done in as_completed([pool.submit(judged, mutant) for mutant in chosen]):
                yield done.result()


def share(text: str) -> tuple[int, int]:
    """Parse a share such as 1/4: the first of four parts of the mutants."""
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"a share is written like 1/4, not {text!r}")
    return int(number), int(of)


def main() -> int:
    """Judge the mutants; return 0 if every one is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only those with it in their name")
    parser.add_argument("--share", type=share, default=(1, 1), help="such as 1/4: every fourth one")
    arguments = parser.parse_args()
    number, of = arguments.share
    parts = arguments.parts or [""]
    named = [mutant for mutant in MUTANTS if any(part in mutant.name for part in parts)]
    if not named:
        parser.error(f"no mutant's name has {' or '.join(map(repr, parts))} in it")
    chosen = named[number - 1 :: of]
    console, bar, killed = Console(), Console(stderr=True), 0
    console.print(ROW.format("killed by", "s", "networks", "mutant"), highlight=False)
    for verdict in track(verdicts(chosen), "mutants", len(chosen), console=bar, transient=True):
        killed += verdict.law is not None
        console.print(str(verdict), soft_wrap=True, highlight=False, markup=False)
    console.print(f"{killed} of {len(chosen)} are killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
