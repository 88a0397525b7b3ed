"""What spark-submit is given: ``spark-submit $(python -m errata.submit) tape.py --box bars``.

With arguments it is `errata spark`; without any it prints where it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve()
    # A script's own folder comes first: modules in it must not hide others of the same name.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != here.parent]
    if len(sys.argv) == 1:
        print(here)
    else:
        from errata.cli import main

        sys.argv.insert(1, "spark")
        main()
