"""Functions of the vocabulary: their names, their parameters, and how a call is lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from errata.processors.expressions import rules
from errata.processors.expressions.columns import Kernel
from errata.processors.expressions.part import Part, apply, reading
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType


class UnfitError(ErrataError):
    """A call or an operator has unfit arguments; the compiler adds the position in the text.

    Args:
        need: What is needed.
        found: What is there instead.
        argument: Index of the argument in question, None for the whole call.
        hint: The remedy, if there is one.
    """

    def __init__(
        self, need: str, *, found: str, argument: int | None = None, hint: str = ""
    ) -> None:
        self.need, self.found, self.argument, self.hint = need, found, argument, hint
        super().__init__(f"needs {need}, found {found}")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function.

    Args:
        word: The documentation's word for its argument.
        fit: Casts an argument to the type that the function needs; returns None if it can't.
        written: The class of literal that the argument must be; the function then gets its value.
    """

    word: str
    fit: Callable[[Part], Part | None]
    written: type[int | str] | None = None

    def take(self, part: Part) -> Any:
        """Return the value that the function gets for an argument, None if it doesn't fit."""
        if self.written is not None:
            return part.literal if isinstance(part.literal, self.written) else None
        return self.fit(part)


def _among(*kinds: str, void: FieldType) -> Callable[[Part], Part | None]:
    def fit(part: Part) -> Part | None:
        if part.type == rules.VOID:
            return part.cast(void)
        return part if part.type.kind in kinds else None

    return fit


def _cast(target: FieldType, *kinds: str) -> Callable[[Part], Part | None]:
    def fit(part: Part) -> Part | None:
        return part.cast(target) if part.type.kind in ("void", *kinds) else None

    return fit


def _text(part: Part) -> Part | None:
    castable = rules.can_cast(part.type, rules.STRING) and part.type.kind != "bytes"
    return part.cast(rules.STRING) if castable else None


def _octets(part: Part) -> Part | None:
    text = part.cast(rules.STRING) if part.type.kind in ("void", *rules.TEXT) else part
    return text.cast(rules.BYTES) if text.type.kind in ("string", "bytes") else None


def _moment(target: FieldType, *unchanged: str) -> Callable[[Part], Part | None]:
    def fit(part: Part) -> Part | None:
        part = reading(part, target) or part
        if part.type.kind in unchanged:
            return part
        return part.cast(target) if part.type.kind in ("void", *rules.TEMPORAL) else None

    return fit


ANY = Parameter("any", lambda part: part)
NUMBER = Parameter("number", _among(*rules.NUMERIC, void=rules.DOUBLE))
OPERAND = Parameter("number", lambda p: p if p.type.kind in ("void", *rules.NUMERIC) else None)
DOUBLE = Parameter("number", _cast(rules.DOUBLE, *rules.NUMERIC))
INT = Parameter("int", _cast(rules.INT, *rules.WHOLE))
LONG = Parameter("long", _cast(rules.LONG, *rules.WHOLE))
TEXT = Parameter("string", _text)
TEXT_OR_BYTES = Parameter("string or bytes", lambda p: p if p.type.kind == "bytes" else _text(p))
BYTES = Parameter("string or bytes", _octets)
CONDITION = Parameter("boolean", _among("boolean", void=rules.BOOLEAN))
DATE = Parameter("date", _moment(rules.DATE))
TIMESTAMP = Parameter("timestamp", _moment(rules.TIMESTAMP, *rules.INSTANTS))
INSTANT = Parameter("timestamp", _among(*rules.INSTANTS, void=rules.TIMESTAMP))
SOME_TEXT = Parameter("'text'", lambda part: None, str)
SOME_NUMBER = Parameter("1", lambda part: None, int)


@dataclass(frozen=True)
class Function:
    """One function.

    Args:
        name: Its name in Spark, in lower case.
        takes: Its parameters.
        gives: Its result, for the documentation.
        lower: Returns the part of a call, from the values of literal parameters and the parts of
            the others.
        example: A call.
        least: The least number of arguments; None: one for each parameter.
        repeats: Whether the last parameter may be repeated.
        aliases: Its other names.
    """

    name: str
    takes: tuple[Parameter, ...]
    gives: str
    lower: Callable[..., Part]
    example: str
    least: int | None = None
    repeats: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """The call as the documentation shows it, with optional arguments in brackets."""
        least = len(self.takes) if self.least is None else self.least
        words = [parameter.word for parameter in self.takes]
        inner = ", ".join(words[:least])
        for word in words[least:]:
            inner += f"[, {word}]"
        return f"{self.name}({inner}{', ...' * self.repeats}) -> {self.gives}"

    def call(self, arguments: Sequence[Part]) -> Part:
        """Return the part of a call.

        Raises:
            UnfitError: If there are too many or too few arguments, or one has a wrong type.
        """
        least = len(self.takes) if self.least is None else self.least
        count = len(arguments)
        if count < least or (count > len(self.takes) and not self.repeats):
            count_text = f"{least}" if self.least is None else f"{least} or more"
            raise UnfitError(
                f"{count_text} argument{'s' * (count_text != '1')} of {self.name}",
                found=str(count),
                hint=self.signature,
            )
        parameters = [self.takes[min(i, len(self.takes) - 1)] for i in range(count)]
        values = [p.take(argument) for p, argument in zip(parameters, arguments, strict=True)]
        for index, value in enumerate(values):
            if value is None:
                word = parameters[index].word
                literal = "a literal such as " if parameters[index].written else ""
                raise UnfitError(
                    f"{literal}{word} as argument {index + 1} of {self.name}",
                    found=str(arguments[index].type.required),
                    argument=index,
                    hint=self.signature,
                )
        return self.lower(*values)


def plain(kernel: Callable[..., pl.Series], gives: FieldType) -> Callable[..., Part]:
    """Return a `Function.lower` for a kernel that returns null if an argument is null.

    The kernel gets literal arguments in their positions. If its result may be null for other
    reasons, its type must be optional.
    """

    def lower(*arguments: Any) -> Part:
        parts = [argument for argument in arguments if isinstance(argument, Part)]
        kind = replace(gives, optional=gives.optional or any(p.type.optional for p in parts))
        return apply(_in_place(kernel, arguments), kind, *parts)

    return lower


def _in_place(kernel: Kernel, arguments: Sequence[Any]) -> Kernel:
    indexes = [index for index, value in enumerate(arguments) if isinstance(value, Part)]
    if len(indexes) == len(arguments):
        return kernel

    def run(*columns: pl.Series) -> pl.Series:
        values = list(arguments)
        for place, column in zip(indexes, columns, strict=True):
            values[place] = column
        return kernel(*values)

    return run
