"""``python -m errata.demo.audit --bootstrap HOST:PORT``: the audit as a command."""

from __future__ import annotations

import argparse
import sys

from errata.demo.audit.log import AuditError
from errata.demo.audit.verdict import audit


def main() -> int:
    """Print the verdict; return 0 only if nothing differs, 2 if there is none."""
    parser = argparse.ArgumentParser(description="Recompute the demo's results and compare.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    try:
        verdict = audit(parser.parse_args().bootstrap)
    except AuditError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    print("\n".join(verdict.lines()))
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
