"""Errors of expressions and of users' functions."""

from __future__ import annotations

from errata.schemas.errors import ErrataError


class ExpressionError(ErrataError):
    """An expression is invalid.

    Args:
        text: The whole expression.
        position: Index in `text` of the character in question, from 0.
        need: What is needed there.
        found: What is there instead.
        hint: The remedy, if there is one.

    Example:
        >>> error = ExpressionError("prise > 5", 0, need="a field", found="prise", hint="price?")
        >>> print(error)
        expression 'prise > 5', character 1: needs a field, found prise; price?
        >>> print(error.caret)
        prise > 5
        ^
    """

    def __init__(self, text: str, position: int, *, need: str, found: str, hint: str = "") -> None:
        self.text = text
        self.position = position
        self.need = need
        self.found = found
        self.hint = hint
        shown = text if len(text) <= 200 else text[:200] + "..."
        super().__init__(
            f"expression {shown!r}, character {position + 1}: needs {need}, found {found}"
            + (f"; {hint}" if hint else "")
        )

    @property
    def caret(self) -> str:
        """The line of the text in question, and below it a caret at the character."""
        start = self.text.rfind("\n", 0, self.position) + 1
        line = self.text[start:].split("\n", 1)[0]
        return f"{line}\n{' ' * (self.position - start)}^"


class UserFunctionError(ErrataError):
    """A user's function has raised, or has returned an invalid value.

    Args:
        function: Its name.
        step: The step that failed: ``accumulate``, ``emit`` and so on, or ``call``.
        reason: What was needed and what was found.
        row: Index of the first tuple that it failed on, among its arguments; None if unknown.
    """

    def __init__(self, function: str, step: str, reason: str, *, row: int | None = None) -> None:
        self.function, self.step, self.reason, self.row = function, step, reason, row
        super().__init__(f"function {function}, {step}: {reason}")
