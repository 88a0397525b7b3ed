"""Finds filters that never match, so that a network does not drop tuples unnoticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from errata.processors.plan.plan import Plan
from errata.processors.wire.report import CountKey


def silent_filters(plan: Plan, counts: Iterable[Mapping[str, int]]) -> list[str]:
    """Return a sentence for each filter that has judged tuples and passed none.

    Args:
        plan: The network.
        counts: Running totals of each of its tasks.
    """
    total: Counter[CountKey] = Counter()
    for own in counts:
        total.update({CountKey.parse(text): count for text, count in own.items()})
    return [
        f"filter {name!r} has let none of {judged} revisions pass: {box.filter.text}"
        for name, box in plan.boxes.items()
        if box.filter is not None
        and (judged := total[CountKey("judged", name)])
        and not total[CountKey("passed", name)]
    ]
