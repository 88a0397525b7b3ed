"""`errata` with thresholds that suit a run of a minute: ``python -m tests.faults.small run ...``.

Sweepers write their copy to the disk early, and lost records are looked for often. Else a short run
would never get there.
"""

from errata.cli import main
from errata.processors.tasks import lost_records
from errata.sweepers.store import Store

SEGMENT_ROWS, CHECKED_S = 400, 5.0

if __name__ == "__main__":
    Store.__init__.__kwdefaults__["segment_rows"] = SEGMENT_ROWS
    lost_records.CHECKED_S = CHECKED_S
    main()
