"""Writes the generated pages of the documentation, in Markdown.

``python -m errata.cli.reference > docs/reference/cli.md`` writes the commands,
``python -m errata.cli.reference settings > docs/settings.md`` the settings, and
``python -m errata.cli.reference metrics > docs/metrics.md`` the metrics. All come from the
declarations, so that the page of commands has the same text as ``--help``.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import typer.main

from errata.cli import entry
from errata.cli.app import app
from errata.observe.metric_catalogue import SHARED_METRICS, SWEEPER_METRICS, TASK_METRICS, Metric
from errata.observe.port import LIBRARY_METRICS, PROCESS_METRICS
from errata.run.exit_status import DEBUG
from errata.run.supervisor_port import UP_METRICS
from errata.settings.catalogue import SETTINGS
from errata.settings.origin import FILE

_COMMANDS_INTRO = """# Command line

Every command is a sub-command of `errata`. `NET` names a network: `module:name`, `file.py:name`, or
`file.py` if the file has one network only. Commands that reach a cluster read the
[settings](../settings.md). `errata --install-completion` completes commands, networks and arcs in
your shell.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | an error that the message explains |
| 2 | wrong usage |
| 70 | an internal error of Errata |
| 75 | a call or a commit hung after its broker was lost; a supervisor starts the process again |
| 130 | Ctrl-C |
| 141 | the reader of the output stopped reading |

"""
_MARKUP = re.compile(r"(?<!\\)\[/?(?:bold|dim|italic)\]")
_PLACEHOLDER = re.compile(r"<([^<>]+)>")
_SHARED = frozenset({"help", "install_completion", "show_completion"})


def commands_page() -> str:
    """Return the page of all commands."""
    entry.declare()
    root = typer.main.get_command(app)
    commands = list(_commands("errata", root))
    rows = [f"| [`{path}`](#{_anchor(path)}) | {_first(about)} |" for path, _, about in commands]
    contents = "| command | does |\n|---|---|\n" + "\n".join(rows) + "\n"
    return (
        _COMMANDS_INTRO
        + contents
        + "".join(_section(path, command) for path, command, _ in commands)
    )


def _commands(path: str, group: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the commands below a group: command line, command, and help."""
    for name, command in group.commands.items():
        full_name = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from _commands(full_name, command)
        else:
            yield full_name, command, _plain(command.help or "")


def _section(path: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in _SHARED]
    usage = " ".join([path, *map(_usage, arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"\n## `{path}`\n", _wrapped(_plain(command.help or "")), f"    {usage}\n"]
    rows = [f"| `{_name(p)}` | {_about(p)} |" for p in arguments]
    rows += [f"| {_option_names(p)} | {_about(p)} |" for p in options]
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


def _option_names(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag or option.count else f" {_value(option)}"
    return ", ".join(f"`{name}{value}`" for name in names).replace("|", "\\|")


def _value(option: Any) -> str:
    """Return the placeholder of an option's value: its metavar, or the option's own name."""
    return str(option.metavar or option.opts[0].strip("-").replace("-", "_").upper())


def _about(parameter: Any) -> str:
    text = _cell(_plain(getattr(parameter, "help", None) or ""))
    if getattr(parameter, "multiple", False) and "repeated" not in text:
        text += " May be repeated."
    default = parameter.default
    shown = getattr(parameter, "show_default", True) is not False
    if shown and default not in (None, (), [], "", False, True) and not callable(default):
        text += f" Default: `{getattr(default, 'value', default)}`."
    return text.strip()


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


_SETTINGS_INTRO = f"""# Settings

Every command reads the nearest `{FILE}`, from the working folder upwards. The plain variables,
which other Kafka tools use too, override the file. Variables of the form `ERRATA_<TABLE>__<KEY>`
override both. An empty variable does not count. An unknown setting is refused, with the place where
it was found; secrets are never printed.

With `_FILE` after its name, a variable of Errata's names a file that holds the value, as Docker and
Kubernetes mount secrets: `ERRATA_KAFKA__SASL_PASSWORD_FILE=/run/secrets/tape`. The line break at
the file's end does not count. Both variables at once are refused. See [security](security.md).

```toml
[kafka]
"bootstrap.servers" = "localhost:9092"
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "tape" # the password: ERRATA_KAFKA__SASL_PASSWORD

[state]
folder = ".errata"

[topics]
compaction_lag = "1d"
```

"""

_SETTINGS_END = f"""
Other variables: `{DEBUG}=1` shows the traceback of a fault. `ERRATA_CACHE` is where the embedded
broker of `errata demo` keeps its jars; `JAVA_HOME` names the Java that runs it.

Durations are numbers with `ms`, `s`, `m`, `h` or `d`. Topics, envelopes, `lateness`, `idle_after`
and `keep` belong to a network: its Python file sets them.
"""


def settings_page() -> str:
    """Return the page of all settings."""
    lines = ["| setting | variables | default | what it does |", "|---|---|---|---|"]
    for setting in SETTINGS:
        variables = ", ".join(f"`{name}`" for name in (setting.variable, setting.plain) if name)
        name = f"`{setting.table}.{setting.key or '<key>'}`"
        lines.append(f"| {name} | {variables} | {setting.default} | {setting.about} |")
    return _SETTINGS_INTRO + "\n".join(lines) + "\n" + _SETTINGS_END


_METRICS_INTRO = """# Metrics

A process serves `/metrics` in Prometheus' text format at the address that `http.listen` sets
([settings](settings.md)). [Operations](operations.md#what-to-watch) says what to watch. A process
shows the tasks and sweepers that it runs, so all processes together show the whole network, each
task once. They update the values once a second. Labels have as many values as the network has
scopes, tasks, boxes and arcs; the content of a record is never a label.

Tasks keep their counters in their reports, exactly once: such a counter goes on where the last
process ended, whichever process runs the task next. The others, marked *, begin at 0 with the
process.
"""

_GROUPS = (
    ("Tasks", TASK_METRICS),
    ("Sweepers", SWEEPER_METRICS),
    ("Every process with a network", SHARED_METRICS),
    ("Every process", PROCESS_METRICS + LIBRARY_METRICS),
    ("`errata up`", UP_METRICS),
)
METRICS: tuple[Metric, ...] = tuple(metric for _, group in _GROUPS for metric in group)
"""Every metric."""


def metrics_page() -> str:
    """Return the page of all metrics."""
    return _METRICS_INTRO + "".join(
        f"\n## {name}\n\n{_metrics_table(group)}" for name, group in _GROUPS
    )


def _metrics_table(metrics: Sequence[Metric]) -> str:
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{name}`" for name in metric.labels)
        kind = f"{metric.kind} *" if metric.since_start else metric.kind
        lines.append(f"| `{metric.name}` | {kind} | {labels} | {metric.about} |")
    return "\n".join(lines) + "\n"


_PAGES = {"commands": commands_page, "settings": settings_page, "metrics": metrics_page}

if __name__ == "__main__":
    sys.stdout.write(_PAGES[sys.argv[1] if sys.argv[1:] else "commands"]())
