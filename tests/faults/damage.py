"""Random damage to local state, at rest and while it is open: right answers, or made anew.

``python -m tests.faults.damage --rounds 200`` is the long form; the tests have a short one. Every
round runs in a process of its own, so that a signal is seen, and a hang is ended.

Each round works on a whole network in memory, whose ingest task has an index of thousands of
identities, and whose sweeper has a copy of several segments. It is stopped, in order or as by
SIGKILL, its files are damaged, and it goes on. Every tuple, every answer of the sweeper and every
result is compared with the truth.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.progress import track

from errata import Network, tumbling
from errata.processors.ingest import identity_index
from errata.sweepers import segments
from errata.sweepers.sweeper import Sweeper
from errata.testing import Driver
from tests.copying import copy_open

MINUTE, COUNT, LIMIT_S = 60_000, 1_500, 240
FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long", "note": "string"}
Damage = Callable[[Path, random.Random, Path], None]


# -------------------------------------------------------------------- the damage


def zeroed(path: Path, dice: random.Random, older: Path) -> None:
    with path.open("r+b") as file:
        file.seek(dice.randrange(max(1, path.stat().st_size)) // 4096 * 4096)
        file.write(bytes(min(4096, max(1, path.stat().st_size - file.tell()))))


def flipped(path: Path, dice: random.Random, older: Path) -> None:
    with path.open("r+b") as file:
        content = bytearray(file.read())
        for _ in range(dice.choice([1, 1, 2, 8, 64])):
            if content:
                content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        file.seek(0)
        file.write(content)


def truncated(path: Path, dice: random.Random, older: Path) -> None:
    os.truncate(path, dice.randrange(max(1, path.stat().st_size)))


def emptied(path: Path, dice: random.Random, older: Path) -> None:
    os.truncate(path, 0)


def lengthened(path: Path, dice: random.Random, older: Path) -> None:
    with path.open("ab") as file:
        file.write(dice.choice([b"\0", bytes(5000), dice.randbytes(300)]))


def deleted(path: Path, dice: random.Random, older: Path) -> None:
    path.unlink()


def directory(path: Path, dice: random.Random, older: Path) -> None:
    path.unlink()
    path.mkdir()
    if dice.random() < 0.5:
        (path / "x").write_bytes(b"x")


def swapped(path: Path, dice: random.Random, older: Path) -> None:
    other = dice.choice([each for each in path.parent.iterdir() if each.is_file()])
    between = path.with_name("between")
    path.rename(between)
    if other != path:
        other.rename(path)
    between.rename(other)


def of_another(path: Path, dice: random.Random, older: Path) -> None:
    other = dice.choice([each for each in path.parent.iterdir() if each.is_file()])
    content = other.read_bytes()
    path.write_bytes(content)


def older_version(path: Path, dice: random.Random, older: Path) -> None:
    """Put back the file as it was some epochs ago, if it was there; else another one from then."""
    known = [each for each in older.iterdir() if each.is_file()]
    was = older / path.name
    source = was if was.exists() else dice.choice(known)
    (path.parent / source.name).write_bytes(source.read_bytes())


def older_folder(path: Path, dice: random.Random, older: Path) -> None:
    """Put the whole folder back, as a restored backup does."""
    folder = path.parent
    for each in folder.iterdir():
        each.unlink()
    for each in older.iterdir():
        shutil.copy(each, folder / each.name)


def mixed_folder(path: Path, dice: random.Random, older: Path) -> None:
    """Put about half of the older files back among the new ones."""
    for each in older.iterdir():
        if dice.random() < 0.5:
            shutil.copy(each, path.parent / each.name)


DAMAGE: list[Damage] = [
    zeroed,
    flipped,
    truncated,
    emptied,
    lengthened,
    deleted,
    directory,
    swapped,
    of_another,
    older_version,
    older_folder,
    mixed_folder,
]
AT_REST, OPEN = "at rest", "open"


# -------------------------------------------------------------------- a round


def network(*, rekey: bool) -> Network:
    net = Network("rotten")
    trades = net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", keep="30d", rekey=rekey
    )
    trades.aggregate("sums", by=[], window=tumbling("10m"), keep="30d", total="sum(price)")
    return net


class Round:
    """A network whose state is damaged once, or twice.

    Args:
        seed: The seed of all choices.
        what: ``index`` or ``copy``.
        how: The damage.
        when: Whether the files are damaged while they are open.
    """

    def __init__(self, seed: int, what: str, how: Damage, when: str) -> None:
        self.dice = random.Random(seed)
        self.what, self.how, self.when = what, how, when
        self.held: dict[str, dict[str, Any]] = {}
        self.minute = 0
        self.driver = Driver(network(rekey=self.dice.random() < 0.4), mode="upstream")
        (self.task,) = (t for t in self.driver.tasks if getattr(t, "held_tuples", None))
        self.base = Path(tempfile.mkdtemp(prefix="errata-damage-"))
        self.now = [0]
        self.sweeper = self._sweeper()

    def _sweeper(self) -> Sweeper:
        return Sweeper(
            self.driver.shared,
            "trades",
            partition=0,
            folder=self.base / "copy",
            clock_ms=lambda: self.now[0],
            segment_rows=400,
        )

    @property
    def folder(self) -> Path:
        return self.task.held_tuples.folder if self.what == "index" else self.base / "copy"

    def run(self) -> None:
        self.work(6)
        older = self.base / "older"
        self.save(older)
        self.work(6)
        self.damage(older)
        self.work(4)
        self.check()

    def save(self, older: Path) -> None:
        copy_open(self.folder, older)

    def work(self, epochs: int) -> None:
        dice = self.dice
        for _ in range(epochs):
            self.minute += 3
            for _ in range(dice.randrange(COUNT // 6)):
                key = f"{dice.randrange(COUNT):020}"
                row = {
                    "key": key,
                    "at": self.minute * MINUTE + dice.randrange(MINUTE),
                    "price": dice.randrange(10**6),
                    "note": "x" * dice.randrange(60),
                }
                before = self.held.get(key)
                if before is not None and dice.random() < 0.3:
                    line: dict[str, Any] = {"op": "delete", "before": self.held.pop(key)}
                else:
                    self.held[key] = row
                    line = {"op": "insert", "after": row}
                    if before is not None:
                        line = {"op": "replace", "before": before, "after": row}
                self.driver.send("trades", line)
            self.driver.close_epoch()
            self._follow()

    def _follow(self) -> None:
        for _ in range(4):
            self.now[0] += 1_100
            self.sweeper.follow()

    def damage(self, older: Path) -> None:
        segments._CACHE._frames.clear()
        if self.when == OPEN:
            self._spoil(older)
            return
        is_killed = self.dice.random() < 0.5
        folder, saved = self.folder, self.base / "saved"
        if is_killed:  # what the disk holds when the process is killed
            shutil.copytree(folder, saved)
        number = self.driver.tasks.index(self.task)
        if self.what == "index":
            self.driver.attempts[number].close()
        else:
            self.sweeper.close()
        if is_killed:
            shutil.rmtree(folder)
            saved.rename(folder)
        self._spoil(older)
        if self.what == "index":
            self.driver.attempts[number] = self.task.steps()
            for _ in self.driver.attempts[number]:
                if self.task.started:
                    break
        else:
            self.sweeper = self._sweeper()

    def _spoil(self, older: Path) -> None:
        files = [path for path in sorted(self.folder.iterdir()) if path.is_file()]
        victim = self.dice.choice(files)
        self.how(victim, self.dice, older)
        print(f"{self.how.__name__} {victim.name}", file=sys.stderr)

    def check(self) -> None:
        """Compare the arc, the copy and the results with the truth."""
        segments._CACHE._frames.clear()
        found = {row["key"]: row for row in self.driver.table("trades")}
        assert found == self.held, "the arc differs"
        assert self.driver.dead_letters() == [], "dead letters"
        asked = pl.DataFrame({"from_ms": [-(2**61)], "to_ms": [2**61]})
        answer = None
        for _ in range(400):
            self._follow()
            answer = self.sweeper.answer(self.driver.shared.view.newest_epoch(), asked)
            if answer is not None:
                break
        assert answer is not None, "the sweeper gives no answer"
        tuples = answer.tuples
        told = {row["key"]: row for row in tuples.select(*FIELDS).iter_rows(named=True)}
        assert tuples.height == len(self.held), "the copy has a tuple twice, or lacks one"
        assert told == self.held, "the copy differs"
        self.driver.end()
        totals = Counter[int]()
        for row in self.held.values():
            totals[row["at"] // (10 * MINUTE) * 10 * MINUTE] += row["price"]
        sums = {row["window_start"]: row["total"] for row in self.driver.table("sums")}
        assert sums == dict(totals), "the results differ"

    def close(self) -> None:
        self.sweeper.close()
        self.driver.close()
        shutil.rmtree(self.base, ignore_errors=True)


def choices(number: int) -> tuple[str, Damage, str]:
    """Return what a round damages, how and when: all combinations in turn."""
    how = DAMAGE[number % len(DAMAGE)]
    rest = number // len(DAMAGE)
    return ("index", "copy")[rest % 2], how, (AT_REST, OPEN)[rest // 2 % 2]


def alone(seed: int, number: int) -> None:
    """Run one round in this process."""
    identity_index.FLUSH_BYTES = 30_000
    segments.BLOCK_ROWS = 64
    damaged = Round(seed, *choices(number))
    try:
        damaged.run()
    finally:
        damaged.close()


def apart(seed: int, number: int) -> str:
    """Run one round in a process of its own; return what was wrong, "" if nothing."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.faults.damage"]
    command += ["--alone", json.dumps([seed, number])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"hangs for {LIMIT_S} s"
    if done.returncode == 0:
        return ""
    return f"status {done.returncode}: {done.stderr[-3000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        alone(*json.loads(given.alone))
        return 0
    console, counts, faults = Console(stderr=True), Counter[str](), 0
    for number in track(range(given.rounds), "damage", console=console, transient=True):
        what, how, when = choices(number)
        wrong = apart(given.seed * 10_000 + number, number)
        counts[f"{what} {when}"] += 1
        if wrong:
            faults += 1
            console.print(f"round {number}: {what}, {how.__name__}, {when}: {wrong}", markup=False)
    with suppress(ZeroDivisionError):
        print(", ".join(f"{n} rounds of {what}" for what, n in counts.items()))
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
