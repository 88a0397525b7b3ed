"""The benchmark's short form: it runs, and its results are right."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.tape import tape
from bench.variants import VARIANTS
from errata.schemas import revisions as frames


@pytest.mark.kafka
def test_the_short_form_runs_and_its_results_equal_a_recomputation(broker):
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", "--short"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ratio to raw" in done.stdout
    measured = {line[:18].strip() for line in done.stdout.splitlines()}
    assert measured >= {"raw", *VARIANTS}


def test_the_tape_is_the_same_for_the_same_seed_and_has_its_share_of_corrections():
    one, other = tape(10_000), tape(10_000)
    assert one.equals(other)
    assert not one.equals(tape(10_000, seed=8))
    replaced = (one["op"] == frames.REPLACE).sum()
    deleted = (one["op"] == frames.DELETE).sum()
    assert 60 < replaced < 140
    assert 5 < deleted < 40
