"""A short form of the long run."""

from tests.processors.progress.long import run


def test_thousands_of_random_moves_break_no_law() -> None:
    assert run(6_000, 7)["moves"] >= 6_000
