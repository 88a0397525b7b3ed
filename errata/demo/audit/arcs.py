"""Folds the revisions of an arc, and checks that they are chained and minimal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Revision:
    """A revision of an arc, and its position."""

    partition: int
    offset: int
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    epoch: int

    @property
    def side(self) -> dict[str, Any]:
        """The side that has the tuple's identity."""
        return self.after or self.before or {}

    @property
    def order(self) -> tuple[int, bool, int]:
        """The order of folding: by epoch, with deletes first in an epoch."""
        return self.epoch, self.op != "delete", self.offset


Identity = tuple[Any, ...]
Content = dict[Identity, list[dict[str, Any]]]


def by_identity(
    revisions: Iterable[Revision], identity: Sequence[str]
) -> dict[tuple[int, Identity], list[Revision]]:
    """Return the revisions of each identity in each partition, in the order of folding."""
    chains: dict[tuple[int, Identity], list[Revision]] = defaultdict(list)
    for revision in sorted(revisions, key=lambda r: r.order):
        key = tuple(revision.side[name] for name in identity)
        chains[revision.partition, key].append(revision)
    return chains


def chain_faults(arc: str, revisions: Iterable[Revision], identity: Sequence[str]) -> Iterator[str]:
    """Yield revisions that do not follow from the one before, or that change nothing."""
    for (partition, key), chain in by_identity(revisions, identity).items():
        last: dict[str, Any] | None = None
        epoch = None
        for revision in chain:
            what = f"{revision.op} of {_s(key)}"
            where = f"{arc}, partition {partition}, offset {revision.offset}: {what}"
            sides = {"insert": (False, True), "delete": (True, False), "replace": (True, True)}
            if (revision.before is not None, revision.after is not None) != sides[revision.op]:
                yield f"{where} has the sides of another op"
            if revision.before != last:
                before, emitted = _text(revision.before), _text(last)
                yield f"{where} is not chained: before is {before}, but {emitted} was emitted"
            if revision.before == revision.after:
                yield f"{where} changes nothing"
            if revision.epoch == epoch:
                yield f"{where} is the second one in epoch {epoch}"
            last, epoch = revision.after, revision.epoch


def fold(revisions: Iterable[Revision], identity: Sequence[str]) -> Content:
    """Return the final content by identity; more than one tuple if partitions disagree."""
    content: Content = defaultdict(list)
    for (_, key), chain in by_identity(revisions, identity).items():
        if chain[-1].after is not None:
            content[key].append(chain[-1].after)
    return content


def differences(
    arc: str, content: Content, expected: Mapping[Identity, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the differences between an arc's content and the expected one, in expected fields."""
    for key in sorted(expected.keys() | content.keys(), key=str):
        tuples, needed = content.get(key, []), expected.get(key)
        if needed is None:
            yield f"{arc}: {_s(key)} must not exist, found {_text(tuples[0])}"
        elif not tuples:
            yield f"{arc}: {_s(key)} is missing, needs {_text(needed)}"
        elif len(tuples) > 1:
            yield f"{arc}: {_s(key)} exists {len(tuples)} times"
        elif {name: tuples[0].get(name) for name in needed} != needed:
            wrong = [name for name in needed if tuples[0].get(name) != needed[name]]
            faults = ", ".join(f"{n} {tuples[0].get(n)} instead of {needed[n]}" for n in wrong)
            yield f"{arc}: {_s(key)} is wrong: {faults}"


def mode_differences(
    one: Iterable[Revision], other: Iterable[Revision], identity: Sequence[str]
) -> Iterator[str]:
    """Yield the revisions that differ between two arcs: in epoch, identity, before or after."""

    def by_key(revisions: Iterable[Revision]) -> dict[tuple[Any, ...], Revision]:
        return {(r.epoch, r.partition, r.op, *(r.side[n] for n in identity)): r for r in revisions}

    left, right = by_key(one), by_key(other)
    for key in sorted(left.keys() | right.keys(), key=str):
        a, b = left.get(key), right.get(key)
        what = f"epoch {key[0]}: {key[2]} of {_s(key[3:])}"
        if a is None or b is None:
            yield f"{what} was emitted {'upstream' if b is None else 'downstream'} only"
        elif (a.before, a.after) != (b.before, b.after):
            yield (
                f"{what}: upstream {_text(a.before)} -> {_text(a.after)}, "
                f"downstream {_text(b.before)} -> {_text(b.after)}"
            )


def _s(key: Sequence[Any]) -> str:
    return " ".join(map(str, key))


def _text(content: Mapping[str, Any] | None) -> str:
    if content is None:
        return "nothing"
    return "{" + ", ".join(f"{name} {value}" for name, value in content.items()) + "}"
