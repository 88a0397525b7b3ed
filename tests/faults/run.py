"""The fault campaign: ``make faults``.

Each seed starts brokers and a network as real processes, feeds it, causes faults at random moments,
and compares everything that the network has written with a recomputation. It fails if anything
differs, a process dies in a way that is not documented, or a kind of fault was never caused.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults.campaign import (
    CLEANED,
    FAULTS,
    OF_ONE,
    OF_THREE,
    OVERLAP,
    Outcome,
    run_seed,
)
from tests.faults.running import FED as NETWORKS
from tests.faults.soak import soak

COUNT, MINUTES = 6, 0.75
KINDS = [*FAULTS, CLEANED]
MOST_SHOWN = 20
ROOT = Path(__file__).parents[2]
"""The path of this machine that outcomes do not show."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=COUNT, help="of each seed")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="a seed's least time")
    parser.add_argument("--overlap", type=float, default=OVERLAP, metavar="SHARE",
                        help="of the faults that come before the one before is over")  # fmt: skip
    parser.add_argument("--kinds", nargs="+", choices=KINDS, metavar="KIND",
                        help=", ".join(KINDS))  # fmt: skip
    parser.add_argument("--out", type=Path, help="append a line of JSON for each seed")
    parser.add_argument("--sum", nargs="+", type=Path, metavar="OUT", dest="earlier",
                        help="run nothing: show what earlier runs have found")  # fmt: skip
    parser.add_argument("--logs", type=Path, default=Path(".cache/faults"),
                        help="where the logs of seeds that fail are kept")  # fmt: skip
    parser.add_argument("--brokers", choices=["one", "three"], default="one")
    parser.add_argument("--spark", action="store_true", help="with an aggregate on Spark")
    parser.add_argument("--composed", action="store_true",
                        help="with a network that is bound to arcs of another one")  # fmt: skip
    parser.add_argument("--soak", type=float, metavar="MINUTES",
                        help="load without faults; draws memory, handles, disk, lag")  # fmt: skip
    options = parser.parse_args(arguments)
    possible = [*OF_THREE] if options.brokers == "three" else [*OF_ONE, CLEANED]
    options.kinds = options.kinds or possible
    if impossible := set(options.kinds) - set(possible):
        parser.error(f"not with --brokers {options.brokers}: {', '.join(sorted(impossible))}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; return the exit status."""
    options = parsed(arguments)
    console = Console(stderr=True)
    if options.earlier:
        earlier = [outcome for path in options.earlier for outcome in read(path)]
        summarize(console, earlier, KINDS)
        return int(not all(outcome.is_clean for outcome in earlier))
    options.logs.mkdir(parents=True, exist_ok=True)
    if options.soak is not None:
        network = list(NETWORKS)[options.first_seed % len(NETWORKS)]
        found = soak(
            network, minutes=options.soak, seed=options.first_seed, keep=options.logs.absolute(),
            say=lambda line: console.print(line, highlight=False, soft_wrap=True),
        )  # fmt: skip
        for line in found[:MOST_SHOWN]:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return int(bool(found))
    columns = (
        TextColumn("{task.fields[seed]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    outcomes, commit = list[Outcome](), head()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=options.seeds, seed="")
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            progress.update(task, seed=f"seed {seed}")

            def say(line: str, seed: int = seed) -> None:
                progress.update(task, description=line[:60])
                if not console.is_terminal:
                    console.print(f"seed {seed}: {line}", highlight=False, soft_wrap=True)

            outcome = run_seed(
                seed, kinds=options.kinds, faults=options.faults, minutes=options.minutes,
                keep=options.logs.absolute(), say=say, spark=options.spark,
                three=options.brokers == "three", composed=options.composed,
                overlap=options.overlap,
            )  # fmt: skip
            outcome.commit = commit
            outcomes.append(outcome)
            progress.advance(task)
            _tell(console, outcome, options)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as out:
                    text = json.dumps(vars(outcome)).replace(str(ROOT), ".")
                    out.write(text + "\n")
    missing = summarize(console, outcomes, options.kinds)
    return int(bool(missing) or not all(outcome.is_clean for outcome in outcomes))


def _tell(console: Console, outcome: Outcome, options: argparse.Namespace) -> None:
    """Show what became of a seed, and the command that repeats it if it failed."""
    console.print(
        f"seed {outcome.seed}: {outcome.network}, {outcome.records:,} records, "
        f"{sum(outcome.caused.values())} faults in {outcome.seconds:.0f} s: "
        f"{len(outcome.differences)} differences, {len(outcome.complaints)} complaints",
        highlight=False,
    )
    if outcome.is_clean:
        return
    for line in [*outcome.differences[:MOST_SHOWN], *outcome.complaints[:MOST_SHOWN]]:
        console.print(f"  {line[:2000]}", highlight=False, markup=False, soft_wrap=True)
    kinds = " --spark" * options.spark + " --composed" * options.composed
    console.print(
        f'repeat: make faults ARGS="--seeds 1 --first-seed {outcome.seed} '
        f'--faults {options.faults} --minutes {options.minutes:g} --brokers {options.brokers} '
        f'--overlap {options.overlap:g}'
        f'{kinds} --kinds '
        f'{" ".join(options.kinds)}"; its log is in {options.logs}',
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def head() -> str:
    """Return the commit of the code, abbreviated; "" if it is not known."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def read(path: Path) -> list[Outcome]:
    """Return what became of the seeds of a run that was told `--out`."""
    with path.open(encoding="utf-8") as lines:
        found = [Outcome(**json.loads(line)) for line in lines]
    for outcome in found:
        outcome.caused = Counter(outcome.caused)
    return found


def summarize(console: Console, outcomes: Sequence[Outcome], kinds: Sequence[str]) -> list[str]:
    """Show a row for each kind of fault, and of all; return the kinds of which none was caused."""
    caused, recovery = Counter[str](), defaultdict[str, list[float]](list)
    for outcome in outcomes:
        caused.update(outcome.caused)
        for kind, seconds in outcome.recovery_s.items():
            recovery[kind] += seconds
    table = Table("fault", "caused", "recovery p50", "p99", "seeds that failed")

    def add_row(name: str, count: int, known: list[float], of: Sequence[Outcome]) -> None:
        shares = [f"{np.percentile(known, p):.1f} s" if known else "" for p in (50, 99)]
        failed = sum(not outcome.is_clean for outcome in of)
        table.add_row(name, str(count), *shares, f"{failed} of {len(of)}")

    for kind in kinds:
        add_row(kind, caused[kind], recovery[kind], [o for o in outcomes if o.caused[kind]])
    table.add_section()
    add_row("any", caused.total(), [s for known in recovery.values() for s in known], outcomes)
    console.print(table)
    missing = [kind for kind in kinds if not caused[kind]]
    if missing:
        console.print(f"never caused: {', '.join(missing)}; run more seeds")
    return missing


if __name__ == "__main__":
    sys.exit(main())
