"""The arc of a lag: its input's fields, and results over the tuple `offset` rows before."""

from __future__ import annotations

from dataclasses import replace

from errata.processors.boxes.lag import Lag
from errata.processors.compile.typed import (
    NAME_RULE,
    Typed,
    bad_name,
    correction,
    duration,
    fault,
    known,
    positive,
    repartitioned,
    visible,
)
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network
from errata.processors.expressions.expression import Expression, compile_expression
from errata.processors.expressions.opaque import Opaque
from errata.processors.windows.row_windows import MOST_ROWS
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError


def type_lag(network: Network, box: declared.Lag, typed: Typed) -> None:
    """Type a lag: add its arc and its box to `typed`, or note its faults."""
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.partitions, "partitions")
    known(typed, box, tuple(box.by), visible(above), "by")
    if type(box.offset) is not int or not 0 < box.offset <= MOST_ROWS:
        need = f"offset= as a whole number from 1 to {MOST_ROWS}"
        fault(typed, box, need, repr(box.offset), "give the number of tuples to look back")
    expressions = _expressions(typed, box, above)
    if len(typed.faults) > before:
        return
    by, partition_by = tuple(box.by), above.partition_by
    if box.partitions is not None or not set(partition_by) <= set(by):
        above = repartitioned(typed, box.name, above, by=by, partitions=box.partitions)
        partition_by = above.partition_by
    needed = {*above.visible, *above.identity, above.event_time}
    fields = {name: kind for name, kind in above.fields.items() if name in needed}
    fields |= {name: expression.type.nullable for name, expression in expressions.items()}
    arc = replace(
        above,
        name=box.name,
        fields=fields,
        partition_by=partition_by,
        keep_ms=keep,
        exchange=False,
    )
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = Lag(
        arc=arc, input=above, by=by, offset=box.offset, expressions=expressions
    )


def _expressions(typed: Typed, box: declared.Lag, above: Arc) -> dict[str, Expression]:
    """Return the results over the earlier tuple; notes faults."""
    expressions = {}
    for name, text in box.expressions.items():
        if bad_name(name):
            fault(typed, box, NAME_RULE, repr(name), "rename the result")
        elif name in above.fields:
            need = "results under other names than its input's fields"
            fault(typed, box, need, f"{name!r}, which is a field of its input", "rename the result")
        try:
            if isinstance(text, Opaque):
                expressions[name] = text.bound(visible(above))
            else:
                expressions[name] = compile_expression(text, visible(above))
        except ErrataError as error:
            fault(typed, box, f"an expression for {name!r}", error, correction(box, name))
    return expressions
