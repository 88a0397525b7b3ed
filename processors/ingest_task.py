"""The ingest task: one partition of a user's topic, into the source's arc (DESIGN 4 and 5).

It stamps what it takes with an epoch of its own choosing, at least the largest that any ingest has
reported: the clock only picks a number, order comes from the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from processors import dead_letter
from processors.dead_letter import TOO_LARGE, UNDECODABLE, DeadLetter
from processors.envelopes.checks import ROW, Decoded, Refusal, nothing
from processors.envelopes.native_avro import NativeAvro
from processors.envelopes.native_json import NativeJson
from processors.index import LONGEST_KEY, Index
from processors.report import FOREVER, IDLE, NEVER
from processors.taking import KEY, Taken, split_moves, take
from processors.task import Emission, Shared, Task
from processors.typed import Source
from schemas import framing
from schemas import revisions as frames
from schemas.avro import tuple_schema
from schemas.decode import Decoder
from schemas.encode import Encoder
from schemas.errors import ErrataError
from schemas.partition import partitions
from topics import names
from topics.cluster import Reader, Records, TopicPartition

INTERVAL_MS = 50
WIDEST_MS = 2_000
REPORT_MS = 1_000
ROWS_A_BATCH = 50_000
LONGEST_VALUE = 200_000
"""Bytes of a source record at most: a result may hold its values four times; a topic takes 1 MB."""
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
        self.ended = TopicPartition(names.plan_topic(shared.plan.network), 0)
        self.folder = folder
        self.envelope = (
            NativeJson(arc) if source.format == "json" else NativeAvro(arc, shared.registry)
        )
        key = tuple_schema("Key", {name: arc.fields[name] for name in arc.identity})
        spread = tuple_schema("Partition", {name: arc.fields[name] for name in arc.partition_by})
        self.key_encoder, self.partition_encoder = Encoder(key), Encoder(spread)
        content = tuple_schema("Tuple", arc.fields)
        self.encoder, self.decoder = Encoder(content), Decoder(content)
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
        self.controls: dict[int, int] = {}
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
        self._change_index(index, last, done=self.report.done, positions=reached)
        index.commit()

    def _change_index(
        self,
        index: Index,
        revisions: pl.DataFrame,
        *,
        done: int,
        positions: dict[TopicPartition, int] | None = None,
    ) -> None:
        names_ = list(self.arc.fields)
        gone, there = frames.DELETE, revisions.filter(pl.col("op") != frames.DELETE)
        dead = revisions.filter(pl.col("op") == gone)
        after = frames.side(there, frames.AFTER, names_)
        before = frames.side(dead, frames.BEFORE, names_)
        index.begin(
            put=(self._keys(after), self.encoder.encode(after)),
            delete=self._keys(before),
            done=done,
            positions=positions
            or index.positions | {p: o for p, (o, _) in self.report.ends.items()},
        )

    def _keys(self, tuples: pl.DataFrame) -> list[bytes]:
        return self.key_encoder.encode(tuples.select(self.arc.identity))

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
            buried = False
            for _ in self.bury():
                buried = True
                yield True
            yield buried

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
            if self.plan.source_of[scope.boxes[0]] == self.arc.name
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
        decoded = self._decode(values)
        taken = self._judge(decoded.frame)
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
        for name, count in [*taken.counts.items(), *_tally(refused, len(values)).items()]:
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
        self._change_index(self.index, taken.revisions, done=epoch)
        emissions = self._emissions(taken.revisions, epoch)
        yield from self.commit(emissions, report, records=dead)
        self.index.commit()
        self.stamped_ms = now
        yield True

    def _decode(self, values: list[bytes | None]) -> Decoded:
        """Return the revisions of a batch and the records that can't be taken in."""
        refused: list[Refusal] = []
        longest = max(map(len, filter(None, values)), default=0)
        usable: list[Any] = values
        rows: list[int] | None = None
        if longest > LONGEST_VALUE or None in values:
            rows = []
            for row, value in enumerate(values):
                if value is None:
                    refused.append(Refusal(row, UNDECODABLE, "no value: a tombstone"))
                elif len(value) > LONGEST_VALUE:
                    need = f"needs at most {LONGEST_VALUE} bytes, found {len(value)}"
                    refused.append(Refusal(row, TOO_LARGE, need))
                else:
                    rows.append(row)
            usable = [values[row] for row in rows]
        found = self.envelope.decode(usable) if usable else Decoded(nothing(self.arc), [])
        frame, told = found.frame, found.refused
        if rows is not None:
            places = pl.Series(rows, dtype=pl.Int64)
            frame = frame.with_columns(places.gather(frame[ROW]).alias(ROW))
            told = [replace(refusal, row=rows[refusal.row]) for refusal in told]
        frame = split_moves(self.arc, frame)
        frame = frame.with_columns(pl.Series(KEY, self._row_keys(frame), dtype=pl.Binary))
        long = frame.filter(pl.col(KEY).bin.size() > LONGEST_KEY)
        if long.height:
            need = f"needs an identity of at most {LONGEST_KEY} bytes, found more"
            refused += [Refusal(row, TOO_LARGE, need) for row in long[ROW].unique().to_list()]
            frame = frame.filter(~pl.col(ROW).is_in(long[ROW].implode()))
        return Decoded(frame, refused + told)

    def _row_keys(self, frame: pl.DataFrame) -> list[bytes]:
        return self._keys(self.shared.codec(self.arc.name).identities(frame))

    def _judge(self, given: pl.DataFrame) -> Taken:
        """Return what a batch changes, given what the arc holds."""
        assert self.index is not None
        keys = given[KEY].unique()
        found = pl.DataFrame(
            {KEY: keys, "held": pl.Series(self.index.get(keys.to_list()), dtype=pl.Binary)}
        )
        found = found.filter(pl.col("held").is_not_null())
        held = self.decoder.decode(found["held"].to_list()).with_columns(found[KEY])
        oldest = None
        if self.arc.keep_ms is not None and self.newest_ms > NEVER:
            oldest = self.newest_ms - self.arc.keep_ms
        return take(
            self.arc,
            given,
            held,
            oldest_ms=oldest,
            watermark=self.newest_ms,
        )

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

    def _emissions(self, revisions: pl.DataFrame, epoch: int) -> list[Emission]:
        """Return the revisions by partition: a replace that moves is a delete and an insert."""
        if revisions.is_empty():
            return []
        before = self._partitions(revisions, frames.BEFORE, frames.INSERT)
        after = self._partitions(revisions, frames.AFTER, frames.DELETE)
        moved = (revisions["op"] == frames.REPLACE) & (before != after)
        stay = revisions["op"] == frames.DELETE
        target = after.zip_with(~stay, before)
        emissions = [Emission(self.arc.name, epoch, revisions, target)]
        if moved.any():
            emissions = [
                Emission(self.arc.name, epoch, revisions.filter(~moved), target.filter(~moved))
            ]
            movers = revisions.filter(moved)
            for op, side, where in (
                (frames.DELETE, frames.AFTER, before),
                (frames.INSERT, frames.BEFORE, after),
            ):
                half = movers.with_columns(
                    pl.lit(op, pl.UInt8).alias("op"),
                    *(pl.lit(None, t.dtype).alias(side + n) for n, t in self.arc.fields.items()),
                )
                emissions.append(Emission(self.arc.name, epoch, half, where.filter(moved)))
        return [emission for emission in emissions if emission.revisions.height]

    def _partitions(self, revisions: pl.DataFrame, side: str, absent: int) -> pl.Series:
        """Return the partition of one side of each revision; 0 where it has none."""
        there = revisions["op"] != absent
        fields = list(self.arc.partition_by)
        encoded = (
            self.partition_encoder.encode(frames.side(revisions.filter(there), side, fields))
            if fields
            else [b""] * int(there.sum())
        )
        found = pl.Series(partitions(encoded, self.plan.partition_count(self.arc.name)))
        result = pl.Series([0], dtype=pl.Int32).new_from_index(0, revisions.height)
        return result.scatter(there.arg_true(), found.cast(pl.Int32))


def _tally(refused: list[Refusal], read: int) -> dict[str, int]:
    found = {"read": read, "dead_letters": len(refused)}
    for refusal in refused:
        name = f"refused.{refusal.reason}"
        found[name] = found.get(name, 0) + 1
    return found
