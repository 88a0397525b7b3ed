"""Hostile records of a user's topic, through the tasks of a network in memory.

Every record ends in one of four ways: it changes the arc as an independent judge says, it repeats
what the arc holds, it is passed over as the envelope says, or it is a dead letter with its bytes.
"""

import random
import struct
from collections import Counter
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

from errata import Network, tumbling
from errata.processors.wire import dead_letter as reasons
from errata.processors.wire.dead_letter import DeadLetter
from errata.testing import Driver
from errata.topics.registry import UnknownSchemaError
from tests.faults.hostile_records import FIELDS, SCHEMAS, Sent, Source
from tests.faults.judges import (
    DELETE,
    INSERT,
    PASSED,
    BadRecordError,
    Meaning,
    Tuple,
    is_whole,
    judge_of,
    key_of,
)

KINDS = [
    (envelope, format)
    for envelope, formats in (
        ("append", ("avro", "json", "csv")),
        ("upsert", ("avro", "json", "csv")),
        ("debezium", ("avro", "json")),
        ("native", ("avro", "json")),
    )
    for format in formats
]
KEEP_MS, AHEAD_MS, WINDOW_MS = 30 * 86_400_000, 86_400_000, 600_000
LEAST, MOST = 1, 700
"""Records of a batch."""
WIDER_HEAD = b"\0\0\0\0\2"


class Schemas:
    """A registry that has `SCHEMAS`."""

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        raise AssertionError(subject)

    def schema(self, schema_id: int) -> Any:
        if schema_id not in SCHEMAS:
            raise UnknownSchemaError(schema_id, registry="the registry")
        return SCHEMAS[schema_id]

    def latest(self, subject: str) -> tuple[int, Any] | None:
        return None


def network(envelope: str, format: str, *, rekey: bool) -> Network:
    net = Network("hostile")
    trades = net.source(
        "trades",
        envelope=envelope,
        format=format,
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        keep=KEEP_MS,
        max_ahead=AHEAD_MS,
        rekey=rekey,
    )
    trades.aggregate(
        "sums",
        by=["ok"],
        window=tumbling(WINDOW_MS),
        n="count(*)",
        total="sum(price)",
        mean="avg(price)",
        longs="sum(n)",
        large="max(size)",
        least="min(f)",
        sizes="sum(size)",
        first="first(note)",
        spread="stddev_pop(n)",
        keep=KEEP_MS,
    )
    total = {"n": "count(*)", "total": "sum(price)"}
    trades.aggregate("all", by=[], window=None, emit="on_update", keep=KEEP_MS, fields=total)
    return net


@dataclass
class Found:
    """What became of the records.

    Args:
        counts: Records by outcome.
        faults: What no record may do, as sentences.
        stricter: Records that were refused, and a judge could read, by what the dead letter says.
    """

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    stricter: dict[str, bytes] = field(default_factory=dict)

    def add(self, other: "Found") -> None:
        self.counts += other.counts
        self.faults += other.faults
        self.stricter |= other.stricter


def run(envelope: str, format: str, *, seed: int, records: int) -> Found:
    """Send some records to a network in memory, and judge what became of each."""
    dice = random.Random(f"{envelope} {format} {seed}")
    found, rekey = Found(), dice.random() < 0.25
    mode = dice.choice(["upstream", "downstream"])
    with Driver(network(envelope, format, rekey=rekey), mode=mode, live=Schemas()) as driver:
        for task in driver.tasks:
            if hasattr(task, "source"):
                task.source = changed(task.source, max_ahead_ms=AHEAD_MS)
        source, epochs = Source(format, envelope, dice), dict[int, list[Sent]]()
        while sum(map(len, epochs.values())) < records:
            left = records - sum(map(len, epochs.values()))
            batch = source.batch(min(left, dice.randrange(LEAST, MOST)))
            for sent in batch:
                driver.send_raw("trades", sent.value, sent.key)
            epochs[driver.close_epoch()] = batch
        Model(driver, epochs, envelope, format, found).check()
    return found


class Model:
    """Recomputes the arc of a source from its records and the dead letters."""

    def __init__(
        self,
        driver: Driver,
        epochs: dict[int, list[Sent]],
        envelope: str,
        format: str,
        found: Found,
    ) -> None:
        self.driver, self.epochs, self.found = driver, epochs, found
        self.envelope, self.judge = envelope, judge_of(format, envelope)
        self.what = f"{envelope} {format}"
        self.held, self.passed = dict[str, Tuple](), 0
        self.newest = -(2**62)
        self.halves = set[str]()
        """Identities that a record would have left or taken, of which only a half was refused."""
        self.letters: dict[int, DeadLetter] = {}
        self.counts = Counter[str]()

    def check(self) -> None:
        of_boxes = Counter[str]()
        for letter in self.driver.dead_letters():
            if letter.is_of_box:
                of_boxes[letter.reason] += 1
            elif letter.offset in self.letters:
                self._fault(f"two dead letters of offset {letter.offset}", letter.value)
            else:
                self.letters[letter.offset] = letter
        self.found.counts.update({f"box: {k}": n for k, n in of_boxes.items()})
        history = self.driver._history("trades")
        arc = self.driver.plan.topology.arcs["trades"]
        told = dict[str, Tuple]()
        by_epoch = {
            epoch: part for (epoch,), part in history.partition_by("epoch", as_dict=True).items()
        }
        offset = 0
        for epoch, batch in self.epochs.items():
            newest = self.newest
            for sent in batch:
                self._take(sent, offset, newest)
                offset += 1
            if epoch in by_epoch:
                for revision in by_epoch[epoch].iter_rows(named=True):
                    after = {n: revision[f"after.{n}"] for n in FIELDS}
                    if revision["op"] == 1:
                        told.pop(revision["before.key"], None)
                    else:
                        told[after["key"]] = after
            self._compare(told, epoch)
        assert arc.identity == ("key",)
        self._check_counts(offset)
        self._check_results(self.driver)

    def _fault(self, what: str, value: Any = None) -> None:
        shown = "" if value is None else f": {value[:700]!r}"
        self.found.faults.append(f"{self.what}: {what}{shown}")

    # ---------------------------------------------------------------- one record

    def _meaning(self, sent: Sent) -> Meaning:
        longest = max(len(sent.value or b""), len(sent.key or b""))
        if longest > 200_000:
            raise BadRecordError("too large")
        if sent.value is None:
            if self.envelope == "upsert":
                return Meaning(DELETE, before={"key": key_of(sent.key)})
            if self.envelope == "debezium":
                return Meaning(PASSED)
            raise BadRecordError("no value")
        meaning = self.judge.meaning(sent.value)
        if meaning.op == PASSED:
            return meaning
        before, after = meaning.before, meaning.after
        if self.envelope == "upsert":
            if meaning.op == DELETE:
                return Meaning(DELETE, before={"key": key_of(sent.key)})
            assert after is not None
            if after["key"] is None:
                after = {**after, "key": key_of(sent.key)}
        if meaning.op == DELETE:
            if before is None or before["key"] is None:
                if self.envelope != "debezium":
                    raise BadRecordError("a delete of nothing")
                before = {**(before or {}), "key": key_of(sent.key)}
            return Meaning(DELETE, before)
        if after is None or not is_whole(after):
            raise BadRecordError("no whole tuple")
        return Meaning(meaning.op, None if meaning.op == INSERT else before, after)

    def _take(self, sent: Sent, offset: int, newest: int) -> None:
        letter = self.letters.pop(offset, None)
        try:
            if letter is not None and (sent.value or b"").startswith(WIDER_HEAD):
                raise BadRecordError("a judge can't count without end")  # arrays of nulls
            meaning: Meaning | None = self._meaning(sent)
            why = ""
        except BadRecordError as error:
            meaning, why = None, str(error)
        if letter is not None:
            self.counts["dead letters"] += 1
            if (letter.value, letter.key) != (sent.value, sent.key):
                self._fault(f"a dead letter of {offset} has other bytes", sent.value)
            if meaning is not None:
                self._check_refusal(letter, meaning, sent, newest)
            return
        if meaning is not None and meaning.op == PASSED:
            self.passed += 1
            return
        self.counts["accepted"] += 1
        if meaning is None:
            self._fault(f"accepted, though {why} (key {sent.key!r:.60})", sent.value)
            return
        before, after = meaning.before, meaning.after
        named = None if before is None else before["key"]
        if meaning.op == DELETE:
            if self.held.pop(str(named), None) is None and named not in self.halves:
                self._fault("a delete of what is not there was accepted", sent.value)
            return
        assert after is not None
        moves = named is not None and named != after["key"]
        known = self.held.keys() | self.halves
        if meaning.op != INSERT and not moves and after["key"] not in known:
            self._fault("a replace of what is not there was accepted", sent.value)
        if moves:
            self.held.pop(str(named), None)
        self.held[after["key"]] = after
        self.newest = max(self.newest, after["at"])

    def _check_refusal(self, letter: DeadLetter, meaning: Meaning, sent: Sent, newest: int) -> None:
        """Check the reason of a dead letter of a record that can be read."""
        before, after = meaning.before or {}, meaning.after or {}
        keys = {side["key"] for side in (before, after) if side}
        held = [self.held[key] for key in keys if key in self.held]
        if len(keys) == 2:  # with `rekey` the owners of both identities decide for themselves
            self.halves |= keys
        if letter.reason == reasons.UNKNOWN_IDENTITY and not held:
            return
        if letter.reason == reasons.TOO_OLD:
            times = [t for t in (before.get("at"), after.get("at"), *(t["at"] for t in held)) if t]
            if min(times, default=0) < newest - KEEP_MS:
                return
        if letter.reason == reasons.AHEAD and after and after["at"] > AHEAD_MS:
            return
        if letter.reason == reasons.TOO_LARGE and any(len(key.encode()) > 490 for key in keys):
            return
        if letter.reason == reasons.TRUNCATE:
            return
        if sent.is_honest:
            self._fault(
                f"an honest record is refused: {letter.reason}: {letter.detail}", sent.value
            )
        self.counts["stricter"] += 1
        self.found.stricter[f"{self.what}: {letter.reason}: {letter.detail[:50]}"] = (
            sent.value or b""
        )

    # ---------------------------------------------------------------- an epoch, and the end

    def _compare(self, told: dict[str, Tuple], epoch: int) -> None:
        if alike(told, self.held):
            return
        for key in {**told, **self.held}:
            one, other = told.get(key), self.held.get(key)
            if key in self.halves:
                continue
            if (one is None) != (other is None) or (one and not alike(one, other)):
                self._fault(f"epoch {epoch}: the arc holds {one}, should hold {other}")
        self.held, self.halves = dict(told), set()

    def _check_counts(self, sent: int) -> None:
        counts = Counter[str]()
        for of_task in self.driver.counts().values():
            counts.update({k: n for k, n in of_task.items() if "." not in k})
        if self.letters:
            self._fault(f"{len(self.letters)} dead letters of no record")
        if counts["read"] != sent:
            self._fault(f"{counts['read']} read, {sent} sent")
        if counts["passed"] != self.passed:
            self._fault(f"{counts['passed']} passed, should be {self.passed}")
        total = self.counts["accepted"] + self.counts["dead letters"] + self.passed
        if total != sent:
            self._fault(f"{total} accounted for, {sent} sent")
        self.counts.update(records=sent, passed=self.passed)
        self.found.counts += self.counts

    def _check_results(self, driver: Driver) -> None:
        driver.end()
        totals = Counter[tuple[bool | None, int]]()
        numbers = Counter[tuple[bool | None, int]]()
        for row in self.held.values():
            where = row["ok"], row["at"] // WINDOW_MS * WINDOW_MS
            totals[where] += row["price"]
            numbers[where] += 1
        found = {
            (row["ok"], row["window_start"]): (row["n"], int(row["total"] * 100))
            for row in driver.table("sums")
        }
        expected = {where: (numbers[where], totals[where]) for where in numbers}
        if found != expected:
            wrong = {w for w in {*found, *expected} if found.get(w) != expected.get(w)}
            first = next(iter(wrong))
            self._fault(
                f"{len(wrong)} of {len(expected)} sums are wrong: {first}: {found.get(first)}, "
                f"should be {expected.get(first)}"
            )
        every = [(row["n"], int(row["total"] * 100)) for row in driver.table("all")]
        if every != [(len(self.held), sum(totals.values()))][: len(every) or bool(self.held)]:
            self._fault(f"the total is {every}, should be {len(self.held), sum(totals.values())}")


def alike(one: Any, other: Any) -> bool:
    """Whether values are the same, NaN and the sign of zero included."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, float) and isinstance(other, float):
        return (one != one and other != other) or struct.pack(">d", one) == struct.pack(">d", other)
    return bool(one == other) and type(one) is type(other)
