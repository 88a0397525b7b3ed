"""`errata init`: a project that runs as it was written, and nothing that was there is lost."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from errata.cli.start import templates
from errata.settings.place import read_settings
from tests.errata.conftest import Errata

FILES = {"README.md", "errata.toml", "network.py", "prices.jsonl", "test_network.py"}


def test_the_project_runs_and_its_window_is_corrected(
    errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = errata("init", "my shares")
    assert (done.status, done.err) == (0, "")
    project = tmp_path / "my shares"
    assert {path.name for path in project.iterdir()} == FILES
    monkeypatch.chdir(project)
    told = errata("local", "network.py", "--input", "prices=prices.jsonl", "--revisions", "minutes")
    assert (told.status, told.err) == (0, "")
    revisions = [json.loads(line) for line in told.out.splitlines()]
    assert [r["op"] for r in revisions if r["epoch"] == 2] == ["replace", "delete"]
    assert errata("explain", "network.py", "--json").status == 0


def test_its_own_test_passes(errata: Errata, tmp_path: Path, environ: dict[str, str]) -> None:
    assert errata("init").status == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_network_has_the_folders_name_and_the_settings_are_read(
    errata: Errata, tmp_path: Path
) -> None:
    assert errata("init", "tape").status == 0
    assert 'Network("tape")' in (tmp_path / "tape" / "network.py").read_text()
    settings = tomllib.loads((tmp_path / "tape" / "errata.toml").read_text())
    assert settings["kafka"] == {"bootstrap.servers": "localhost:9092"}
    found = read_settings({}, folder=tmp_path / "tape")
    assert found.state == tmp_path / "tape" / ".errata"
    assert all("$" not in path.read_text() for path in (tmp_path / "tape").iterdir())


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_is_overwritten_and_nothing_is_half_written(
    errata: Errata, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("mine")
    done = errata("init")
    assert (done.status, done.out) == (1, "")
    assert f"{name} would be overwritten" in done.err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_json_tells_what_was_written(errata: Errata) -> None:
    told = json.loads(errata("init", "a", "--json").out)
    assert told["network"] == "a"
    assert {Path(path).name for path in told["files"]} == FILES == set(templates())


def test_a_place_that_can_not_be_written_is_one_line(errata: Errata, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = errata("init", "file/below")
    assert done.status == 1
    assert done.err.count("\n") == 1
