"""Plants bugs, one at a time, and checks that a law kills each: ``make mutants``.

A mutant is one changed line that still passes the type checker and figure 1. It is killed if a law
(`tests/laws`) fails; the output names the law. The command fails if a mutant survives, does not
type-check, or fails figure 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import track

from tests.mutants.mutant import (
    FAILING,
    IDLE,
    ON_SPARK,
    RANDOM,
    WITH_JOINS,
    WITH_LOOPS,
    WITH_ROWS,
    Mutant,
)
from tests.mutants.planted import MUTANTS

ROOT = Path(__file__).parents[2]
EXAMPLES, NETWORKS = 40, 100
"""Scenarios per network, and random networks; some bugs need more than the few of `make test`."""
COPIES = 2
"""The number of mutants that are judged at the same time."""
LIMIT_S = 1800
LAWS, RANDOM_LAWS = ["tests/laws/test_laws.py"], ["tests/laws/test_random_networks.py"]
ELSEWHERE = {FAILING: "tests/laws/test_failing.py", IDLE: "tests/laws/test_idle.py"}
FOUND = re.compile(r"^E .*?\b(L[1-7]|Progress)\b", re.MULTILINE)


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


def judge(mutant: Mutant, where: Path) -> tuple[bool, str]:
    """Return whether a law kills the planted bug, and what happened."""
    path = where / mutant.file
    source = path.read_text()
    if source.count(mutant.old) != 1:
        return False, f"its line is {source.count(mutant.old)} times in {mutant.file}"
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        types = run(where, "mypy", "--no-error-summary")
        if types.returncode:
            return False, "does not type: " + types.stdout.splitlines()[0]
        figure = run(where, "pytest", "-q", "-x", "tests/test_figure_1.py")
        if figure.returncode:
            return False, "fails figure 1 already"
        kinds = (ON_SPARK, WITH_JOINS, WITH_ROWS, WITH_LOOPS)
        if mutant.network in (RANDOM, *kinds):
            plain = " and ".join(f"not {kind}" for kind in kinds)
            only = ["-k", plain if mutant.network == RANDOM else mutant.network]
            laws = run(where, "pytest", "-q", "-x", *RANDOM_LAWS, *only, examples=NETWORKS)
        elif mutant.network in ELSEWHERE:
            laws = run(where, "pytest", "-q", "-x", ELSEWHERE[mutant.network])
        else:
            laws = run(where, "pytest", "-q", "-x", *LAWS, "-k", mutant.network)
        found = FOUND.search(laws.stdout) if laws.returncode == 1 else None
        if found is None:
            return False, "survives" if laws.returncode == 0 else "fails, but no law is named"
        return True, f"killed by {found[1]}"
    except subprocess.TimeoutExpired:
        return False, "comes to no end"
    finally:
        path.write_text(source)


def main() -> int:
    """Judge the mutants; return 0 if a law kills every one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only those with it in their name")
    parts = parser.parse_args().parts or [""]
    chosen = [mutant for mutant in MUTANTS if any(part in mutant.name for part in parts)]
    if not chosen:
        parser.error(f"no mutant's name has {' or '.join(map(repr, parts))} in it")
    console, survivors = Console(), 0
    with tempfile.TemporaryDirectory(prefix="errata-mutants-") as folder:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(COPIES):
            where = Path(folder, str(number))
            copy(where)
            free.put(where)

        def judged(mutant: Mutant) -> tuple[Mutant, bool, str]:
            where = free.get()
            try:
                return mutant, *judge(mutant, where)
            finally:
                free.put(where)

        with ThreadPoolExecutor(COPIES) as pool:
            under_way = as_completed([pool.submit(judged, mutant) for mutant in chosen])
            shown = Console(stderr=True)
            for done in track(under_way, "mutants", len(chosen), console=shown, transient=True):
                mutant, killed, what = done.result()
                survivors += not killed
                told = f"{'killed  ' if killed else 'SURVIVES'} {mutant.name}: {what}"
                console.print(told, soft_wrap=True)
    console.print(f"{len(chosen) - survivors} of {len(chosen)} are killed by a law")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
