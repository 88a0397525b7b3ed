"""The ingest task: one partition of a user's topic, into the source's arc (DESIGN 4 and 5).

It stamps what it takes with an epoch of its own choosing, at least the largest that any ingest has
reported: the clock only picks a number, order comes from the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl

from processors import dead_letter
from processors.dead_letter import DeadLetter
from processors.declarations import EARLIEST
from processors.envelopes.checks import ROW, Refusal
from processors.index import Index
from processors.intake import Intake
from processors.report import FOREVER, IDLE, NEVER
from processors.spread import Spread
from processors.task import INTERVAL_MS, Shared, Task
from processors.typed import Source
from schemas import framing
from schemas import revisions as frames
from schemas.errors import ErrataError
from topics import names
from topics.cluster import Reader, Records, TopicPartition

WIDEST_MS = 2_000
ROWS_A_BATCH = 50_000
MOST_PAIRS = 5_000
"""Beyond this many unread (epoch, watermark) pairs the watermark waits for its readers."""


class LostIndexError(ErrataError):
    """An index is gone and can't be made anew."""


class IngestTask(Task):
    """Takes in one partition of a source's topic.

    Args:
        shared: What its process shares.
        source: The source.
        partition: Partition of the user's topic.
        folder: Where its index is kept.
        clock_ms: The wall clock.
        epoch_of: Gives the number to stamp with, and input is stamped at once; None: the clock
            does, at intervals.
    """

    def __init__(
        self,
        shared: Shared,
        source: Source,
        *,
        partition: int,
        folder: Path,
        clock_ms: Callable[[], int],
        epoch_of: Callable[[], int] | None = None,
    ) -> None:
        arc = source.arc
        super().__init__(shared, f"ingest.{arc.name}.{partition}", outputs=(arc.name,))
        self.source, self.arc, self.clock_ms = source, arc, clock_ms
        self.epoch_of = epoch_of or (lambda: clock_ms() // INTERVAL_MS)
        self.paced = epoch_of is None
        self.place = TopicPartition(source.topic, partition)
        self.folder = folder
        self.intake = Intake(source, shared.codec(arc.name))
        self.spread = Spread(arc, self.plan.partition_count(arc.name))
        self.reader: Reader | None = None
        self.index: Index | None = None

    def own_partitions(self, arc: str) -> list[int]:
        """Return all partitions: an ingest task writes wherever its tuples belong."""
        return list(range(self.plan.partition_count(arc)))

    def close(self) -> None:
        """Give all connections and files back."""
        if self.reader is not None:
            self.reader.close()
        if self.index is not None:
            self.index.close()
        super().close()

    # ---------------------------------------------------------------- a new life

    def first_positions(self) -> dict[TopicPartition, int]:
        """Return where a first life begins to read."""
        start = self.source.start
        if start == EARLIEST:
            return {}
        if isinstance(start, int):
            return {self.place: self.cluster.offset_at(self.place, start)}
        return {self.place: self.cluster.end(self.place)}

    def start(self) -> Iterator[bool]:
        """Bring the index up to the arc, and go on reading where the report says."""
        topic = self.plan.topic(self.arc.name)
        self.index = Index(self.folder, label=f"{topic} {self.name} {self.plan.fingerprint()}")
        if self.index.is_new and self.report.done < 0:
            self.index.begin(put=([], []), delete=[], done=-1, positions={})
            self.index.commit()
        elif self.index.is_new and not self.arc.is_connection_point:
            raise LostIndexError(
                f"{self.name}: its index is lost, and source {self.arc.name!r} keeps no history "
                'to read it from again; put the state folder back, or give the source keep="..."'
            )
        if self.index.done != self.report.done:
            yield from self._catch_up(self.index)
        resume = self.report.resume.get(self.place, 0)
        self.reader = self.cluster.reader({self.place: resume})
        self.held: list[Records] = []
        self.stamped_ms = self.heard_ms = self.clock_ms()
        self.newest_ms = self.report.watermark
        yield True

    def _catch_up(self, index: Index) -> Generator[bool, None, None]:
        """Read what was committed since the index was last brought up to date."""
        codec = self.shared.codec(self.arc.name)
        since, found = index.positions, [codec.empty]
        reached: dict[TopicPartition, int] = {}
        for partition in self.own_partitions(self.arc.name):
            place = TopicPartition(codec.topic, partition)
            reached[place] = self.cluster.end(place)
            history = yield from self._history(codec, place, since.get(place, 0))
            own = history.filter((pl.col("task") == self.name) & (pl.col("epoch") > index.done))
            found.append(self.view.believed(own))
        # A tuple that moved between partitions was deleted in one and inserted in the other.
        last = frames.last(pl.concat(found), self.arc.identity)
        self.intake.change(index, last, done=self.report.done, positions=reached)
        index.commit()

    # ---------------------------------------------------------------- a step

    def step(self) -> Iterator[bool]:
        """Take a batch, stamp it, commit it; or follow the peers if there is none."""
        self.view.poll()
        now = self.clock_ms()
        self._read(now)
        busy = bool(self.held) or self._has_end() or self._falls_idle(now)
        due = not self.paced or now - self.stamped_ms >= self._interval_ms()
        if busy and (due or self._rows() >= ROWS_A_BATCH):
            epoch = max(self.epoch_of(), self.report.done + 1, self._largest())
            yield from self._take(epoch, now)
        elif self._largest() > self.report.done and not busy:
            # Follow the peers, never push them: two idle tasks would push each other for ever.
            yield from self.commit([], replace(self.report, done=self._largest()))
        else:
            yield from self.bury()

    def _read(self, now: int) -> None:
        assert self.reader is not None
        end = 0 if self.paced else self.cluster.end(self.place)
        while self._rows() < ROWS_A_BATCH or self.reader.position(self.place) < end:
            for records in self.reader.poll(limit=ROWS_A_BATCH):
                self.held.append(records)
                self.heard_ms = now
            if self.reader.position(self.place) >= end:
                break

    def _rows(self) -> int:
        return sum(map(len, self.held))

    def _largest(self) -> int:
        """Return the largest epoch in any ingest report."""
        tasks = [t for s in self.plan.sources for t in self.view.tasks(f"ingest.{s}")]
        return max(self.view.of(task).done for task in tasks)

    def _interval_ms(self) -> int:
        """Return the time between stamps: wider while the readers lag, so that they batch more."""
        if self.report.done < 0:
            return INTERVAL_MS
        slowest = min(
            (self.view.frontier(task) for task in self._readers()), default=self.report.done
        )
        lag_ms = (self.report.done - slowest) * INTERVAL_MS
        return min(max(INTERVAL_MS, lag_ms // 2), WIDEST_MS)

    def _readers(self) -> list[str]:
        """Return the tasks whose watermark is this source's."""
        return [
            task
            for scope in self.plan.scopes.values()
            if self.arc.name in self.plan.sources_of[scope.boxes[0]]
            for task in self.view.tasks(scope.name)
        ]

    # ---------------------------------------------------------------- watermarks

    def _has_end(self) -> bool:
        """Whether the source was declared ended, is read up to there, and that is not told yet."""
        end = self.view.ends.get(self.arc.name, {}).get(self.place.partition)
        told = self.report.watermarks and self.report.watermarks[-1][1] == FOREVER
        if end is None or told or self.reader is None:
            return False
        return self.reader.position(self.place) >= end

    def _falls_idle(self, now: int) -> bool:
        after = self.source.idle_after_ms
        if after is None or self.held or now - self.heard_ms < after:
            return False
        return not self.report.watermarks or self.report.watermarks[-1][1] not in (IDLE, FOREVER)

    def _pairs(self, epoch: int, watermark: int) -> tuple[tuple[int, int], ...]:
        """Return the (epoch, watermark) pairs that some reader may still need, and the new one."""
        pairs = self.report.watermarks
        waiting = filter(self.view.holds, self._readers())
        passed = min((self.view.of(t).done for t in waiting), default=self.report.done)
        last = max((e for e, _ in pairs if e <= passed), default=-1)
        pairs = tuple(pair for pair in pairs if pair[0] >= last)
        if (not pairs or pairs[-1][1] != watermark) and len(pairs) < MOST_PAIRS:
            pairs += ((epoch, watermark),)
        return pairs

    # ---------------------------------------------------------------- a batch

    def _take(self, epoch: int, now: int) -> Iterator[bool]:
        """Process what is held as one epoch."""
        assert self.index is not None
        assert self.reader is not None
        held, self.held = self.held, []
        idle, ends = not held and self._falls_idle(now), self._has_end()
        values = list(chain.from_iterable(records.values for records in held))
        keys = list(chain.from_iterable(records.keys for records in held))
        decoded = self.intake.decode(values, keys)
        oldest = None
        if self.arc.keep_ms is not None and self.newest_ms > NEVER:
            oldest = self.newest_ms - self.arc.keep_ms
        taken = self.intake.judge(
            self.index, decoded.frame, oldest_ms=oldest, watermark=self.newest_ms
        )
        refused = decoded.refused + [
            Refusal(*row) for row in taken.refused.select(ROW, "reason", "detail").iter_rows()
        ]
        letters = self._letters(refused, held, epoch)
        newest = NEVER if taken.newest_ms is None else taken.newest_ms - self.source.lateness_ms
        self.newest_ms = max(self.newest_ms, newest)
        watermark = FOREVER if ends else IDLE if idle else self.newest_ms
        told = self.report.watermarks[-1][1] if self.report.watermarks else NEVER
        if told == FOREVER:
            watermark = FOREVER
        counts = dict(self.report.counts)
        found = {**taken.counts, **_tally(refused, len(values)), "passed": decoded.passed}
        for name, count in found.items():
            counts[name] = counts.get(name, 0) + count
        report = replace(
            self.report,
            done=epoch,
            watermark=self.newest_ms,
            watermarks=self._pairs(epoch, watermark),
            resume={self.place: self.reader.position(self.place)},
            counts=counts,
        )
        dead = {names.dead_letters_topic(self.plan.network): letters} if letters else None
        positions = self.index.positions | {p: o for p, (o, _) in self.report.ends.items()}
        self.intake.change(
            self.index, taken.revisions, keys=taken.keys, done=epoch, positions=positions
        )
        emissions = self.spread.emissions(taken.revisions, epoch)
        yield from self.commit(emissions, report, records=dead)
        self.index.commit()
        self.stamped_ms = now
        yield True

    def _letters(
        self, refused: list[Refusal], held: list[Records], epoch: int
    ) -> list[tuple[bytes | None, bytes]]:
        """Return dead letters, with the bytes as they came."""
        if not refused:
            return []
        topic = names.dead_letters_topic(self.plan.network)
        schema_id = self.shared.registry.register(f"{topic}-value", dead_letter.SCHEMA)
        where = [(records, i) for records in held for i in range(len(records))]
        letters: list[tuple[bytes | None, bytes]] = []
        for refusal in sorted(refused, key=lambda r: r.row):
            records, i = where[refusal.row]
            letter = DeadLetter(
                self.name,
                self.report.attempt,
                epoch,
                refusal.reason,
                refusal.detail,
                self.place.topic,
                self.place.partition,
                records.offsets[i],
                records.times_ms[i],
                records.keys[i],
                records.values[i],
            )
            letters.append((None, framing.frame([dead_letter.encode(letter)], schema_id)[0]))
        return letters


def _tally(refused: list[Refusal], read: int) -> dict[str, int]:
    found = {"read": read, "dead_letters": len(refused)}
    for refusal in refused:
        name = f"refused.{refusal.reason}"
        found[name] = found.get(name, 0) + 1
    return found
