"""Functions of text and bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl

from errata.processors.expressions import rules, text
from errata.processors.expressions.function import (
    BYTES,
    INT,
    SOME_NUMBER,
    SOME_TEXT,
    TEXT,
    TEXT_OR_BYTES,
    Function,
    UnfitError,
    plain,
)
from errata.processors.expressions.part import Part, apply
from errata.processors.expressions.rules import BOOLEAN, STRING

_BLANK = " "  # Spark trims no other white space
_SHA_BITS = (0, 224, 256, 384, 512)


def matching(value: Part, expression: str, *, ends: bool = False, fold: bool = False) -> Part:
    """Return whether a text has a match of a regular expression in the engine's syntax."""
    kernel = text.matches(expression, ends=ends)
    try:
        kernel(pl.Series([""]))
    except pl.exceptions.ComputeError as error:
        raise UnfitError(
            "a pattern of moderate size", found=str(error).split("\n")[0], argument=1
        ) from error
    lower = text.lower
    run = (lambda values: kernel(lower(values))) if fold else kernel
    return plain(run, BOOLEAN)(value)


def regexp_like(value: Part, pattern: str) -> Part:
    """Return ``value RLIKE pattern``."""
    try:
        expression, ends = text.rlike(pattern)
    except text.PatternError as error:
        raise UnfitError(
            "a pattern of characters, classes, groups, |, ^, $ and * + ? {n,m}",
            found=str(error),
            argument=1,
            hint="flags, look-around, back references and \\b differ between engines",
        ) from error
    return matching(value, expression, ends=ends)


def _concat_ws(separator: str, *parts: Part) -> Part:
    kernel = partial(text.concat_ws, separator)
    return apply(kernel, STRING, *parts)


def _repeat(value: Part, count: int) -> Part:
    return plain(text.repeat, STRING)(value, _capped(count))


def _pad(value: Part, count: int, fill: str = _BLANK, *, before: bool) -> Part:
    return plain(partial(text.pad, before=before), STRING)(value, _capped(count), fill)


def _capped(count: int) -> int:
    if count > text.MAX_REPEAT:
        raise UnfitError(f"at most {text.MAX_REPEAT}", found=str(count), argument=1)
    return count


def _split_part(value: Part, separator: str, number: int) -> Part:
    if number == 0:
        raise UnfitError("a part from 1, or from -1 at the end", found="0", argument=2)
    return plain(text.split_part, STRING)(value, separator, number)


def _sha2(value: Part, bits: int) -> Part:
    if bits not in _SHA_BITS:
        raise UnfitError(f"one of {_SHA_BITS}", found=str(bits), argument=1)
    return plain(text.sha2, STRING)(value, bits)


def _trimmed(side: str) -> Any:
    def trim(values: pl.Series) -> pl.Series:
        return getattr(values.str, side)(_BLANK)  # type: ignore[no-any-return]

    return plain(trim, STRING)


concat = plain(text.concat, STRING)
_length = plain(text.length, rules.INT)
_substring = plain(text.substring, STRING)

FUNCTIONS: tuple[Function, ...] = (
    Function(
        "upper", (TEXT,), "string", plain(text.upper, STRING), "upper(name)", aliases=("ucase",)
    ),
    Function(
        "lower", (TEXT,), "string", plain(text.lower, STRING), "lower(name)", aliases=("lcase",)
    ),
    Function(
        "trim",
        (TEXT,),
        "string without leading and trailing blanks",
        _trimmed("strip_chars"),
        "trim(' a ')",
    ),
    Function("ltrim", (TEXT,), "string", _trimmed("strip_chars_start"), "ltrim(' a ')"),
    Function("rtrim", (TEXT,), "string", _trimmed("strip_chars_end"), "rtrim(' a ')"),
    Function(
        "length",
        (TEXT_OR_BYTES,),
        "int, characters or octets",
        _length,
        "length(name)",
        aliases=("char_length", "character_length", "len"),
    ),
    Function(
        "substring",
        (TEXT, INT, INT),
        "string, from 1, or from -1 at the end",
        _substring,
        "substring(name, -4, 2)",
        least=2,
        aliases=("substr",),
    ),
    Function("left", (TEXT, INT), "string", plain(text.left, STRING), "left(name, 3)"),
    Function("right", (TEXT, INT), "string", plain(text.right, STRING), "right(name, 3)"),
    Function("concat", (TEXT,), "string", concat, "concat(name, '-', size)", repeats=True),
    Function(
        "concat_ws",
        (SOME_TEXT, TEXT),
        "string; skips nulls",
        _concat_ws,
        "concat_ws('-', name, note, size)",
        repeats=True,
    ),
    Function(
        "replace",
        (TEXT, SOME_TEXT, SOME_TEXT),
        "string",
        plain(text.replace, STRING),
        "replace(name, 'r', 'R')",
        least=2,
    ),
    Function(
        "translate",
        (TEXT, SOME_TEXT, SOME_TEXT),
        "string",
        plain(text.translate, STRING),
        "translate(name, 'Ear', 'e')",
    ),
    Function(
        "lpad",
        (TEXT, SOME_NUMBER, SOME_TEXT),
        "string of that length",
        partial(_pad, before=True),
        "lpad(size, 3, '0')",
        least=2,
    ),
    Function(
        "rpad",
        (TEXT, SOME_NUMBER, SOME_TEXT),
        "string of that length",
        partial(_pad, before=False),
        "rpad(name, 8, '.')",
        least=2,
    ),
    Function("repeat", (TEXT, SOME_NUMBER), "string", _repeat, "repeat('ab', 3)"),
    Function("reverse", (TEXT,), "string", plain(text.reverse, STRING), "reverse(name)"),
    Function(
        "instr",
        (TEXT, TEXT),
        "int, 0 if absent",
        lambda value, part: plain(text.locate, rules.INT)(part, value),
        "instr(name, 'r')",
    ),
    Function(
        "locate",
        (TEXT, TEXT, INT),
        "int, 0 if absent",
        plain(text.locate, rules.INT),
        "locate('r', name, 3)",
        least=2,
        aliases=("position",),
    ),
    Function(
        "startswith",
        (TEXT, TEXT),
        "boolean",
        plain(text.starts_with, BOOLEAN),
        "startswith(name, 'E')",
    ),
    Function(
        "endswith", (TEXT, TEXT), "boolean", plain(text.ends_with, BOOLEAN), "endswith(name, 'a')"
    ),
    Function(
        "contains",
        (TEXT, TEXT),
        "boolean",
        plain(text.contains_text, BOOLEAN),
        "contains(name, 'rat')",
    ),
    Function(
        "split_part",
        (TEXT, SOME_TEXT, SOME_NUMBER),
        "string, empty beyond the parts",
        _split_part,
        "split_part('a-b-c', '-', -1)",
    ),
    Function(
        "regexp_like",
        (TEXT, SOME_TEXT),
        "boolean; the patterns of rlike",
        regexp_like,
        "regexp_like(name, '^E')",
        aliases=("rlike", "regexp"),
    ),
    Function("hex", (BYTES,), "string", plain(text.hexadecimal, STRING), "hex(code)"),
    Function("md5", (BYTES,), "string", plain(text.md5, STRING), "md5(name)"),
    Function(
        "sha2", (BYTES, SOME_NUMBER), "string; 0 or 224 to 512 bits", _sha2, "sha2(name, 224)"
    ),
)
