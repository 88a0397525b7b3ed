"""A call that does not return."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging, time
from errata.topics.transactions import ended_if_hung
logging.basicConfig(format="%(message)s")
with ended_if_hung("counting", {limit_s}):
    time.sleep({takes_s})
time.sleep(0.5)
print("done")
"""


HANGING = """
import time
from types import SimpleNamespace
from errata.topics import transactions
transactions.HUNG_S = 0.1
life = object.__new__(transactions.KafkaTransactions)
life._suspicion, life._groups = {suspicion!r}, {{"group": None}}
life._producer = SimpleNamespace(send_offsets_to_transaction=lambda *_: time.sleep(60))
life.offsets("group", {{}})
print("done")
"""


@pytest.mark.parametrize(
    ("suspicion", "ends"),
    [("", ("", os.EX_TEMPFAIL)), ("a connection broke", ("done\n", 0))],
    ids=["it hangs", "a connection broke"],
)
def test_adding_offsets_ends_the_process_if_it_hangs_and_is_left_out_where_it_could(
    suspicion: str, ends: tuple[str, int]
) -> None:
    program = HANGING.format(suspicion=suspicion)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.returncode) == ends


@pytest.mark.parametrize(
    ("limit_s", "takes_s", "ends"),
    [(0.1, 60, ("", os.EX_TEMPFAIL)), (0.4, 0, ("done\n", 0))],
    ids=["hangs", "comes back"],
)
def test_a_process_ends_only_if_it_hangs(
    limit_s: float, takes_s: float, ends: tuple[str, int]
) -> None:
    program = PROGRAM.format(limit_s=limit_s, takes_s=takes_s)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.returncode) == ends
    assert done.stderr.startswith("counting did not return within 0.1 s") == (not ends[0])
