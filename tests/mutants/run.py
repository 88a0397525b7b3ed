"""Plants bugs, one at a time, and sees a law kill each: ``make mutants``.

A mutant is one changed line that still types and still passes figure 1. It is killed if the laws
(`tests/laws`) find it; which law did is printed. One that survives, does not type, or fails figure
1 makes the command fail.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.mutants.planted import MUTANTS, RANDOM, Mutant

ROOT = Path(__file__).parents[2]
EXAMPLES = 40
"""Scenarios a network: some bugs need more than the few of `make test` to show."""
LAWS, RANDOM_LAWS = ["tests/laws/test_laws.py"], ["tests/laws/test_random_networks.py"]
LAW = re.compile(r"\b(L[1-7]|Progress)\b")


def copy(target: Path) -> None:
    """Copy what git tracks, and what it would."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def run(where: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the copy."""
    environment = os.environ | {"PYTHONPATH": str(where), "ERRATA_REQUIRE": ""}
    environment |= {"ERRATA_LAWS_EXAMPLES": str(EXAMPLES)}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=where, env=environment, capture_output=True, text=True,
    )  # fmt: skip


def judge(mutant: Mutant, where: Path) -> tuple[bool, str]:
    """Return whether the planted bug is killed by a law, and what happened."""
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
        chosen = [*LAWS, "-k", mutant.network] if mutant.network != RANDOM else RANDOM_LAWS
        laws = run(where, "pytest", "-q", "-x", *chosen)
        found = LAW.findall(laws.stdout) if laws.returncode == 1 else []
        if not found:
            return False, "survives" if laws.returncode == 0 else "fails, but no law is named"
        return True, f"killed by {found[0]}"
    finally:
        path.write_text(source)


def main() -> int:
    """Judge the mutants; 0 if every one is killed by a law."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.names or m.name in options.names]
    console, survivors = Console(), 0
    with tempfile.TemporaryDirectory(prefix="errata-mutants-") as folder:
        where = Path(folder)
        copy(where)
        for mutant in track(chosen, "mutants", console=Console(stderr=True), transient=True):
            killed, what = judge(mutant, where)
            survivors += not killed
            console.print(f"{'killed  ' if killed else 'SURVIVES'} {mutant.name}: {what}")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
