"""What bash completes: commands, options, and the names in the network's file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.errata.network_file import write_network


def completed(folder: Path, environ: dict[str, str], words: str) -> list[str]:
    """What `errata` offers for the last of these words, as its bash function asks."""
    asked = {
        "_ERRATA_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "errata"],
        cwd=folder,
        env=environ | asked,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("errata dea", ["dead-letters"]),
        ("errata dead-letters re", ["resend"]),
        ("errata tail tape.py su", ["sums"]),
        ("errata revise tape.py ", ["prices"]),
        ("errata end tape.py p", ["prices"]),
        ("errata status --wa", ["--watch"]),
        ("errata tail none.py su", []),
    ],
)
def test_bash_is_offered_what_there_is(
    tmp_path: Path, environ: dict[str, str], words: str, offered: list[str]
) -> None:
    write_network(tmp_path)
    assert completed(tmp_path, environ, words) == offered


def test_the_script_for_bash_is_shown(tmp_path: Path, environ: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "errata", "--show-completion", "bash"],
        cwd=tmp_path,
        env=environ | {"SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "complete -o default -F" in done.stdout
    script = tmp_path / "completion.sh"
    script.write_text(done.stdout)
    checked = subprocess.run(["bash", "-n", str(script)], check=False, env=dict(os.environ))
    assert checked.returncode == 0
