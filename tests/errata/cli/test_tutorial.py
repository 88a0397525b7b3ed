"""What the tutorial shows is what its commands print."""

import re
import shlex
from pathlib import Path

import pytest

from tests.errata.conftest import Errata

PAGE = (Path(__file__).parents[3] / "docs" / "tutorial.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```console\n\$ errata (.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_has_files_and_commands() -> None:
    assert {"tape.py", "trades.csv", "corrected.csv", "late.csv"} <= FILES.keys()
    assert len(COMMANDS) >= 3


@pytest.mark.parametrize(("command", "printed"), COMMANDS, ids=lambda text: text[:60])
def test_a_command_prints_what_the_page_shows(
    command: str, printed: str, errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = errata(*shlex.split(command))
    assert (done.status, done.out) == (0, printed)
