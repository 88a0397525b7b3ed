"""``python -m errata.demo.audit``: the audit as a command.

It reads the settings that all commands read; the audit itself gets only librdkafka's keys.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from time import monotonic, sleep

from errata.demo.audit.records import AuditError, Kafka
from errata.demo.audit.verdict import audit

_PAUSE_S = 1.0


def main() -> int:
    """Print the verdict; return 0 only if nothing differs, 2 if the audit can't be made."""
    parser = argparse.ArgumentParser(description="Recompute the demo's results and compare.")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="by default that of the settings")
    parser.add_argument("--spark", action="store_true", help="check the bars, too")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to repeat the audit until nothing differs",
    )
    arguments = parser.parse_args()
    try:
        kafka, registry = _place(arguments.bootstrap)
    except AuditError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    deadline = monotonic() + arguments.wait
    while True:
        try:
            verdict = audit(kafka, spark=arguments.spark, registry=registry)
            status, text = 0 if verdict.clean else 1, "\n".join(verdict.lines())
        except AuditError as error:
            status, text = 2, f"audit: {error}"
        if not status or monotonic() >= deadline:
            print(text, file=sys.stderr if status == 2 else sys.stdout)
            return status
        sleep(_PAUSE_S)


def _place(bootstrap: str | None) -> tuple[Kafka, str]:
    # Imported by name: the audit shares nothing with the engine (import-linter), but these import
    # it.
    settings, errors = (
        import_module("errata.settings.place"),
        import_module("errata.schemas.errors"),
    )
    override = {"kafka.bootstrap.servers": bootstrap} if bootstrap else {}
    try:
        place = settings.read_settings(settings.overlaid(os.environ, override))
    except errors.ErrataError as error:
        raise AuditError(str(error)) from None
    return place.kafka, place.registry.get("url", "")


if __name__ == "__main__":
    sys.exit(main())
