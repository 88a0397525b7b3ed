"""The page of all commands: ``python -m errata.cli.reference > docs/reference/cli.md``.

It is generated from the declarations of the commands, so it has the same text as ``--help``.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from typing import Any

import typer.main

from errata.cli import entry  # noqa: F401  (declares every command)
from errata.cli.app import app

_INTRO = """# Command line

Every command is a sub-command of `errata`. `NET` names a network: `module:name`, `file.py:name`, or
`file.py` if the file has one network only. Commands that reach a cluster read the
[settings](../settings.md). `errata --install-completion` completes commands, networks and arcs in
your shell.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | a fault that the message explains |
| 2 | wrong usage |
| 70 | a fault of Errata's own |
| 75 | a call or a commit hung after its broker was lost; a supervisor starts the process again |
| 130 | Ctrl-C |
| 141 | the reader of the output stopped reading |

"""
_MARKUP = re.compile(r"(?<!\\)\[/?(?:bold|dim|italic)\]")
_PLACEHOLDER = re.compile(r"<([^<>]+)>")
_SHARED = frozenset({"help", "install_completion", "show_completion"})


def page() -> str:
    """Return the page in Markdown."""
    root = typer.main.get_command(app)
    commands = list(_commands("errata", root))
    rows = [f"| [`{path}`](#{_anchor(path)}) | {_first(about)} |" for path, _, about in commands]
    contents = "| command | does |\n|---|---|\n" + "\n".join(rows) + "\n"
    return _INTRO + contents + "".join(_section(path, found) for path, found, _ in commands)


def _commands(path: str, group: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the commands below a group: command line, command, and help."""
    for name, command in group.commands.items():
        called = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from _commands(called, command)
        else:
            yield called, command, _plain(command.help or "")


def _section(path: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in _SHARED]
    usage = " ".join([path, *map(_usage, arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"\n## `{path}`\n", _wrapped(_plain(command.help or "")), f"    {usage}\n"]
    rows = [f"| `{_name(p)}` | {_about(p)} |" for p in arguments]
    rows += [f"| {_spelled(p)} | {_about(p)} |" for p in options]
    if rows:
        parts.append("| argument or option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    if command.epilog:
        example = _MARKUP.sub("", command.epilog).removeprefix("Example: ")
        parts.append(f"Example:\n\n    {example}\n")
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    """Return paragraphs in lines of up to 100 columns."""
    wrap = partial(textwrap.fill, width=100, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(wrap(paragraph) for paragraph in text.split("\n\n")) + "\n"


def _name(parameter: Any) -> str:
    """Return an argument's name in the usage line, without brackets."""
    return str(parameter.metavar or parameter.name.upper()).strip("[]{}")


def _usage(argument: Any) -> str:
    name = _name(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _spelled(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag or option.count else f" {_value(option)}"
    return ", ".join(f"`{name}{value}`" for name in names).replace("|", "\\|")


def _value(option: Any) -> str:
    """Return the placeholder of an option's value: its metavar, or the option's own name."""
    return str(option.metavar or option.opts[0].strip("-").replace("-", "_").upper())


def _about(parameter: Any) -> str:
    told = _cell(_plain(getattr(parameter, "help", None) or ""))
    if getattr(parameter, "multiple", False) and "repeated" not in told:
        told += " May be repeated."
    default = parameter.default
    shown = getattr(parameter, "show_default", True) is not False
    if shown and default not in (None, (), [], "", False, True) and not callable(default):
        told += f" Default: `{getattr(default, 'value', default)}`."
    return told.strip()


def _plain(text: str) -> str:
    """Return a help text as Markdown: no terminal markup, placeholders not read as HTML."""
    text = _MARKUP.sub("", text).replace("\\[", "[")
    return _PLACEHOLDER.sub(r"&lt;\1&gt;", text)


def _first(text: str) -> str:
    return _cell(text.split("\n\n")[0])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(page())
