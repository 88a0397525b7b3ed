"""``python -m errata.demo.audit --bootstrap HOST:PORT``: the audit as a command."""

from __future__ import annotations

import argparse
import sys
from time import monotonic, sleep

from errata.demo.audit.log import AuditError
from errata.demo.audit.verdict import audit

_PAUSE_S = 1.0


def main() -> int:
    """Print the verdict; return 0 only if nothing differs, 2 if there is none."""
    parser = argparse.ArgumentParser(description="Recompute the demo's results and compare.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--spark", action="store_true", help="there are bars, too")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long the results may still need until nothing differs",
    )
    given = parser.parse_args()
    deadline = monotonic() + given.wait
    while True:
        try:
            verdict = audit(given.bootstrap, spark=given.spark)
            status, told = 0 if verdict.clean else 1, "\n".join(verdict.lines())
        except AuditError as error:
            status, told = 2, f"audit: {error}"
        if not status or monotonic() >= deadline:
            print(told, file=sys.stderr if status == 2 else sys.stdout)
            return status
        sleep(_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
