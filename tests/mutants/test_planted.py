"""Each planted bug still has a place to be planted."""

from pathlib import Path

import pytest

from tests.mutants.planted import MUTANTS

ROOT = Path(__file__).parents[2]


def test_there_are_twenty_over_at_least_fourteen_modules():
    assert len(MUTANTS) >= 20
    assert len({mutant.file for mutant in MUTANTS}) >= 14


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_line_is_there_once(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new
