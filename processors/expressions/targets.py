"""The types that a cast may name."""

from __future__ import annotations

from sqlglot import exp

from errata.processors.expressions import rules
from errata.schemas.fields import FieldType, FieldTypeError

NAMES = "int, bigint, decimal(p,s), float, double, boolean, string, binary, date or timestamp"
"""What a cast goes to, for messages and the documentation."""

_KINDS = {
    "BIGINT": rules.LONG,
    "INT": rules.INT,
    "FLOAT": rules.FLOAT,
    "DOUBLE": rules.DOUBLE,
    "BOOLEAN": rules.BOOLEAN,
    "TEXT": rules.STRING,
    "VARCHAR": rules.STRING,
    "BINARY": rules.BYTES,
    "DATE": rules.DATE,
    "TIMESTAMPTZ": rules.TIMESTAMP,
    "TIMESTAMP": rules.TIMESTAMP,
}


def target(node: exp.DataType) -> FieldType | None:
    """Return the type that a cast names, None if there is no such type here."""
    name = str(getattr(node.this, "value", node.this))
    digits = ",".join(parameter.name for parameter in node.expressions)
    if name == "DECIMAL":
        try:
            return FieldType.parse(f"decimal({digits or '10,0'})")
        except FieldTypeError:
            return None
    return None if digits else _KINDS.get(name)
