"""The arc of a lookup: its left side's, with results added to the fields or replacing them."""

from __future__ import annotations

from dataclasses import replace

from errata.processors.boxes.forward import Forward
from errata.processors.boxes.join import Side
from errata.processors.boxes.lookup import Lookup
from errata.processors.compile.exchanges import passing
from errata.processors.compile.join import brought_together, judge_how, judge_keys, type_expressions
from errata.processors.compile.typed import Typed, carried, duration, fault, positive, visible
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network


def type_lookup(network: Network, box: declared.Lookup, typed: Typed) -> None:
    """Type a lookup: add its arc and its box to `typed`, or note its faults."""
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.partitions, "partitions")
    judge_how(typed, box)
    left, right = typed.arcs[box.input or ""], typed.arcs[box.other]
    on, others = tuple(box.on), tuple(box.on.values())
    judge_keys(typed, box, (left, right), (on, others))
    if unmatched := [name for name in right.identity if name not in others]:
        need = f"the whole identity of {right.name!r} matched, so that there is at most one tuple"
        remedy = 'match them, as on={"mine": "its"}, or take a join'
        fault(typed, box, need, f"{', '.join(map(repr, unmatched))} left out", remedy)
    if box.alias == left.name:
        found, remedy = f"{box.alias!r}, which is its input's", 'give it one, with alias="..."'
        fault(typed, box, f"a name of its own for {right.name!r}", found, remedy)
    fixed = {*left.identity, left.event_time} & set(box.expressions)
    for name in sorted(fixed):
        found = f"{name!r}, which says which tuple it is or when it happened"
        remedy = "give the new value another name"
        fault(typed, box, "identity and event time of its input kept", found, remedy)
    if len(typed.faults) > before:
        return
    is_left = box.how == "left"
    kinds = {f"{left.name}.{name}": kind for name, kind in visible(left).items()}
    names = {name: f"{left.name}.{name}" for name in visible(left)}
    kinds |= {
        f"{box.alias}.{name}": kind.nullable if is_left else kind
        for name, kind in visible(right).items()
    }
    kinds |= {name: kinds[column] for name, column in names.items()}
    expressions = type_expressions(typed, box, kinds)
    if len(typed.faults) > before:
        return
    sides, shared = brought_together(
        typed, box, (Side(left.name, left), Side(box.alias, right)), (on, others)
    )
    arc = replace(
        left,
        name=box.name,
        fields=carried(left) | {name: expression.type for name, expression in expressions.items()},
        partition_by=(shared or sides[0].arc).partition_by,
        keep_ms=keep,
    )
    typed.arcs[arc.name] = arc
    made = passing(typed, arc) if set(expressions) & set(arc.partition_by) else arc
    typed.boxes[made.name] = Lookup(made, sides, on, is_left, expressions, names, shared, others)
    if made is not arc:
        typed.boxes[arc.name] = Forward(arc, made.name)
