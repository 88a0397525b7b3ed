"""The arcs and boxes of ``significance=``: the exact results, those kept back, and what is emitted.

See `errata.processors.boxes.significance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from errata.processors.boxes.bounds import Bound
from errata.processors.boxes.significance import (
    PREFIXES,
    Emitted,
    KeptBack,
    Threshold,
    kept_fields,
)
from errata.processors.compile.typed import Typed, fault, known
from errata.processors.declare import declarations as declared
from errata.processors.expressions.expression import compile_expression
from errata.processors.plan.arc_name import EXACT, KEPT, part_of
from errata.processors.windows.time_windows import FOREVER_MS, duration_ms
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType

_NUMBERS = ("int", "long", "float", "double", "decimal")
_TIMES = {"timestamp-millis": ("unix_millis", 1), "timestamp-micros": ("unix_micros", 1_000)}


def keep_back(box: declared.Declaration, typed: Typed) -> None:
    """Let a typed box keep revisions back, or note the faults of its ``significance=``."""
    if box.name not in typed.boxes:
        return  # a fault is noted
    before = len(typed.faults)
    arc = typed.arcs[box.name]
    thresholds = _thresholds(box, arc, typed)
    if len(typed.faults) > before:
        return
    once = {*arc.identity, arc.event_time}
    doubled = {prefix + n for prefix in PREFIXES for n in arc.fields if n not in once}
    if taken := sorted(doubled & once):
        remedy = "rename it above this box"
        fault(typed, box, "an identity without the names of kept results", taken[0], remedy)
        return
    exact = replace(arc, name=part_of(box.name, EXACT), keep_ms=None)
    kept = replace(
        arc,
        name=part_of(box.name, KEPT),
        fields=kept_fields(arc),
        keep_ms=_longest_keep(typed, box.name),
    )
    own = typed.boxes.pop(box.name)
    del typed.arcs[box.name]
    for each in (
        replace(own, arc=exact),  # type: ignore[type-var]
        KeptBack(kept, exact, thresholds),
        Emitted(arc, exact, kept, thresholds),
    ):
        typed.arcs[each.arc.name], typed.boxes[each.arc.name] = each.arc, each
    if box.name in typed.spark:
        horizon_ms = typed.spark.pop(box.name)
        typed.spark |= {exact.name: horizon_ms, kept.name: None, arc.name: None}


def _longest_keep(typed: Typed, name: str) -> int:
    """Return the longest `keep` of an arc and of those above it: so old a revision may be."""
    keeps_ms, found = [typed.arcs[name].keep_ms or 0], {name}
    for above in reversed(typed.boxes):
        if above in found:
            found |= {*typed.boxes[above].inputs}
    for above in found:
        is_open = above in typed.sources and typed.arcs[above].keep_ms is None
        keeps_ms.append(FOREVER_MS if is_open else typed.arcs[above].keep_ms or 0)
    return max(keeps_ms)


def _thresholds(box: declared.Declaration, arc: Arc, typed: Typed) -> dict[str, Threshold]:
    """Return the thresholds of a box by field; notes the faults."""
    given = box.significance
    if not isinstance(given, Mapping) or not given:
        remedy = 'write significance={"total": "0.1%"}'
        fault(typed, box, "a threshold by field for significance", repr(given), remedy)
        return {}
    fixed = {*arc.identity, arc.event_time, *arc.partition_by}
    free = {name: arc.fields[name] for name in arc.visible if name not in fixed}
    if taken := [name for name in given if name in fixed]:
        need = "thresholds of results; identity and event time are always exact"
        fault(typed, box, need, ", ".join(map(repr, taken)), "leave these fields out")
        return {}
    if not known(typed, box, tuple(given), free, "significance"):
        return {}
    found = {}
    for name, threshold in given.items():
        try:
            found[name] = _threshold(threshold, free[name])
        except ErrataError as error:
            remedy = 'write 2, "0.1%", or for a timestamp a duration as "5s"'
            fault(typed, box, f"a threshold for {name!r}", error, remedy)
    return found


class ThresholdError(ErrataError):
    """A threshold that is none, or on a field without a distance."""


def _threshold(given: Any, kind: FieldType) -> Threshold:
    """Return a threshold on a field of some type.

    Raises:
        ErrataError: If it is none.
    """
    field = kind.required
    if field.kind in _TIMES:
        to_unix, units_a_ms = _TIMES[field.kind]
        bound = Bound(Fraction(duration_ms(given, what="threshold")))
        distance = f"abs({to_unix}(exact) - {to_unix}(emitted))"
        limit = str(bound.absolute * units_a_ms)
    elif field.kind in _NUMBERS:
        is_share, number = _number(given)
        bound = Bound(share=number / 100) if is_share else Bound(number)
        distance = "abs(exact - emitted)"
        limit = f"{'abs(emitted) * ' * is_share}{_digits(bound.share or bound.absolute)}"
    else:
        raise ThresholdError(f"values of type {field} have no distance")
    if bound.absolute < 0 or bound.share < 0:
        raise ThresholdError(f"{given!r} is negative")
    fields = {"emitted": field.nullable, "exact": field.nullable}
    is_within = compile_expression(f"{distance} <= {limit}", fields, needs="boolean")
    return Threshold(str(given), bound, is_within)


def _number(given: Any) -> tuple[bool, Fraction]:
    """Return whether a threshold is in percent, and its number.

    Raises:
        ThresholdError: If it is no number.
    """
    text = str(given).strip()
    try:
        number = Decimal(text.removesuffix("%").strip())
    except InvalidOperation:
        number = Decimal("nan")
    if isinstance(given, bool) or not number.is_finite():
        raise ThresholdError(f"{given!r} is no number")
    return text.endswith("%"), Fraction(number)


def _digits(number: Fraction) -> str:
    """Return a number whose denominator divides a power of ten as an SQL literal."""
    return f"{Decimal(number.numerator) / Decimal(number.denominator):f}"
