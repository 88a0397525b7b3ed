"""Random expressions, well typed and nested, in our words and in Spark's.

Expression n has form n at its root, so that some hundreds of them have every form there is.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from tests.processors.expressions.random_forms import FORMS, Form
from tests.processors.expressions.random_kinds import KINDS, WORDS
from tests.processors.expressions.random_literals import LITERALS
from tests.processors.expressions.spark_rows import FIELDS

DEPTH = 5


@dataclass(frozen=True)
class Tree:
    """An expression.

    Args:
        ours: Its text.
        spark: Its text for Spark.
        near: Whether the last bit of its values may differ.
        parts: The expressions that it is made of, but for fields and literals.
        is_leaf: Whether it is a field or a literal.
    """

    ours: str
    spark: str
    near: bool = False
    parts: tuple["Tree", ...] = ()
    is_leaf: bool = False

    def walk(self) -> Iterator["Tree"]:
        """Return all the expressions in it, the small ones first."""
        for part in self.parts:
            yield from part.walk()
        yield self


def random_expressions(seed: int, count: int) -> Iterator[Tree]:
    """Return so many expressions, always the same for a seed."""
    dice = random.Random(f"expressions {seed}")
    start = dice.randrange(len(FORMS))
    for number in range(start, start + count):
        form = FORMS[number % len(FORMS)]
        kind = dice.choice(list(_combinations(form)))
        yield _made(dice, form, kind, dice.randrange(1, DEPTH + 1))


def _tree(dice: random.Random, kind: str, depth: int) -> Tree:
    forms = _forms(kind)
    if not forms or depth == 0 or dice.random() < 0.15:
        return _leaf(dice, kind)
    return _made(dice, dice.choice(forms), kind, depth)


def _made(dice: random.Random, form: Form, kind: str, depth: int) -> Tree:
    kinds = dice.choice(_combinations(form)[kind])
    parts = [_tree(dice, kind, depth - 1) for kind in kinds]
    return Tree(
        form.text([part.ours for part in parts]),
        form.spark_text([part.spark for part in parts]),
        form.near,
        tuple(part for part in parts if not part.is_leaf),
    )


def _leaf(dice: random.Random, kind: str) -> Tree:
    fields = _COLUMNS.get(kind)
    if fields and (kind not in LITERALS or dice.random() < 0.75):
        text = dice.choice(fields)
    else:
        text = LITERALS[kind](dice)
    return Tree(text, text, is_leaf=True)


@cache
def _combinations(form: Form) -> dict[str, list[tuple[str, ...]]]:
    """Return the kinds of arguments that a form can have, by the kind that it then gives."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for kinds in product(*(WORDS.get(word, (word,)) for word in form.takes)):
        gives = form.gives if isinstance(form.gives, str) else form.gives(*kinds)
        if gives is not None:
            found.setdefault(gives, []).append(kinds)
    return found


@cache
def _forms(kind: str) -> list[Form]:
    """Return the forms that can give a kind and whose values are exact."""
    return [form for form in FORMS if not form.near and kind in _combinations(form)]


_COLUMNS = {
    kind: [name + end for name, field in FIELDS.items() if field.kind == kind for end in ("", "_")]
    for kind in KINDS
} | {"few": ["n", "n_"], "slight": ["t", "t_"], "written": ["w", "w_"]}
"""The fields of each kind."""
