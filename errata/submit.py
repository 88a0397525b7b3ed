"""The script for spark-submit: ``spark-submit $(python -m errata.submit) tape.py --box bars``.

With arguments it runs `errata spark`; without any it prints its own path.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve()
    # A script's own folder comes first in the path: its modules must not hide others.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != here.parent]
    if len(sys.argv) == 1:
        print(here)
    else:
        from errata.cli import main

        sys.argv.insert(1, "spark")
        main()
