"""Each planted bug still matches the line that it changes."""

from pathlib import Path

import pytest

from tests.mutants.planted import MUTANTS

ROOT = Path(__file__).parents[2]


def test_they_have_names_of_their_own_and_are_spread_over_many_modules():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.file for mutant in MUTANTS}) >= 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_line_is_there_once(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new
