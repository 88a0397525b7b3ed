"""The page of the command line is that of the commands."""

from pathlib import Path

from errata.cli.reference import commands_page
from tests.errata.conftest import Errata

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    remedy = "python -m errata.cli.reference > docs/reference/cli.md"
    assert PAGE.read_text(encoding="utf-8") == commands_page(), remedy


def test_every_command_that_help_lists_has_a_section(errata: Errata) -> None:
    listed = errata("--help").out
    lines = commands_page().splitlines()
    sections = {line.split("`")[1].split()[1] for line in lines if line[:4] == "## `"}
    assert sections
    assert all(name in listed for name in sections)
