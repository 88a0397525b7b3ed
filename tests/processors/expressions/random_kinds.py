"""The kinds of random expressions, and which kind a form gives for those of its arguments."""

from collections.abc import Callable

Rule = Callable[..., str | None]
"""From the kinds of the arguments to that of the whole, None if they don't go together."""

NUMBERS = ("int", "long", "decimal", "float", "double")
INSTANTS = ("timestamp-millis", "timestamp-micros")
TEMPORAL = ("date", *INSTANTS)
TEXTS = ("int", "long", "decimal", "boolean", "uuid", *TEMPORAL)
KINDS = (*NUMBERS, "boolean", "string", "bytes", "uuid", *TEMPORAL)

NARROW = {"few": "int", "slight": "decimal"}
"""Kinds with some values only: counts within 999, decimals of 9 digits. There are more of them that
only stand for an argument: `seconds`, say, for the longs that are times of our era."""

WORDS = {
    "any": (*KINDS, "void"),
    "number": (*NUMBERS, "void"),
    "modest": ("int", "long", "slight", "float", "double", "void"),
    "bounded": ("int", "long", "float", "double"),
    "whole": ("int", "long"),
    "exact": ("int", "long", "decimal", "void"),
    "real": ("float", "double"),
    "text": (*["string"] * len(TEXTS), *TEXTS),
    "octets": ("string", "bytes"),
    "dated": (*TEMPORAL, "day_text"),
    "timed": (*INSTANTS, "date", "time_text"),
    "instant": INSTANTS,
    "temporal": TEMPORAL,
    "compared": (*KINDS, "void", "day_text", "time_text"),
}
"""The kinds that a word in a form stands for; another word is the kind itself."""


def arithmetic(*kinds: str) -> str | None:
    """Return the kind of a sum, product or remainder."""
    known = {NARROW.get(kind, kind) for kind in kinds} - {"void"}
    if known == {"float"}:
        return "float"
    for kind in ("double", "float", "decimal", "long", "int"):
        if kind in known:
            return "double" if kind == "float" else kind
    return None


def quotient(*kinds: str) -> str | None:
    """Return the kind of a division."""
    kind = arithmetic(*kinds)
    return kind if kind is None or (kind == "decimal" and "void" not in kinds) else "double"


def common(*kinds: str) -> str | None:
    """Return the kind that values can be compared or chosen from in."""
    known = {kind for kind in kinds if kind != "void"}
    if len(known) == 1:
        return known.pop()
    if known <= set(NUMBERS):
        return arithmetic(*known)
    return max(known, key=TEMPORAL.index) if known <= set(TEMPORAL) else None


def comparison(*kinds: str) -> str | None:
    """Return boolean where values can be compared; text is read as the date or time beside it."""
    texts = {"day_text", "time_text"} & {*kinds}
    others = [kind for kind in kinds if kind not in texts]
    if texts and not others:
        return None
    kind = common(*others)
    readable = {"day_text"} if kind == "date" else texts if kind in INSTANTS else set()
    return "boolean" if kind and texts <= readable else None


def first(*kinds: str) -> str | None:
    """Return the first kind if it can be compared with the second."""
    return kinds[0] if common(*kinds) and kinds[0] != "void" else None


def truth_to_decimal(*kinds: str) -> str | None:
    """Return decimal where values can be compared."""
    return "decimal" if comparison(*kinds) else None


def chosen(test: str, *kinds: str) -> str | None:
    """Return the kind of what is chosen by a test."""
    return common(*kinds)


def nan_or(value: str, other: str) -> str:
    return "float" if value == "float" and other in ("float", "void") else "double"


def own(kind: str, *_: str) -> str:
    """Return the first kind, double for a bare null."""
    return "double" if kind == "void" else kind


def whole_part(kind: str) -> str:
    return "decimal" if kind == "decimal" else "long"


def timestamp(*kinds: str) -> str:
    """Return the kind that a function of a timestamp gives."""
    return "timestamp-micros" if "timestamp-micros" in kinds else "timestamp-millis"


def moved(*kinds: str) -> str:
    return "date" if "date" in kinds else timestamp(*kinds)
