"""The page of all settings: ``python -m errata.cli.settings_page > docs/settings.md``."""

from __future__ import annotations

import sys

from errata.run.exit_status import DEBUG
from errata.settings.catalogue import SETTINGS
from errata.settings.origin import FILE

_INTRO = f"""# Settings

Every command reads the nearest `{FILE}`, from the working folder upwards. The plain variables,
which other Kafka tools use too, override the file. Variables of the form `ERRATA_<TABLE>__<KEY>`
override both. An empty variable does not count. An unknown setting is refused, with the place where
it was found; values are never printed.

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

_REST = f"""
Other variables: `{DEBUG}=1` shows the traceback of a fault. `ERRATA_CACHE` is where the embedded
broker of `errata demo` keeps its jars; `JAVA_HOME` names the Java that runs it.

Durations are numbers with `ms`, `s`, `m`, `h` or `d`. Topics, envelopes, `lateness`, `idle_after`
and `keep` belong to a network: its Python file sets them.
"""


def page() -> str:
    """Return the page in Markdown."""
    lines = ["| setting | variables | default | what it does |", "|---|---|---|---|"]
    for setting in SETTINGS:
        variables = ", ".join(f"`{name}`" for name in (setting.variable, setting.plain) if name)
        name = f"`{setting.table}.{setting.key or '<key>'}`"
        lines.append(f"| {name} | {variables} | {setting.default} | {setting.about} |")
    return _INTRO + "\n".join(lines) + "\n" + _REST


if __name__ == "__main__":
    sys.stdout.write(page())
