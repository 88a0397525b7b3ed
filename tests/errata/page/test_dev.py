"""`errata dev`: from a new project to its first correction, and again whenever a file is saved."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from errata.run import dev
from errata.run.dev import Watched, load_again, sample_inputs
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from tests.errata.conftest import Errata

LIMIT_S = 90.0


class Dev:
    """`errata dev` on a project that `errata init` has written."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.log = folder, folder.parent / "dev.log"
        self.temporary = folder.parent / "temporary"
        self.temporary.mkdir()
        own = environ | {"TMPDIR": str(self.temporary)}
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "errata", "dev", "network.py", "--port", "0"]
            self.process = subprocess.Popen(
                [*command, "--pause", "1s"],
                cwd=folder, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def told(self, text: str, times: int = 1) -> None:
        self.wait_for(lambda: len(re.findall(text, self.log.read_text())) >= times)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + LIMIT_S
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until_s, self.log.read_text()
            time.sleep(0.1)

    def ask(self, path: str) -> dict:
        url = re.findall(r"page: (http://\S+)", self.log.read_text())[-1]
        with urlopen(url + path, timeout=30) as answer:
            return json.load(answer)

    def save(self, old: str, new: str) -> None:
        text = (self.folder / "network.py").read_text()
        assert old in text
        (self.folder / "network.py").write_text(text.replace(old, new))


@pytest.fixture
def project(tmp_path: Path, environ: dict[str, str], errata: Errata) -> Path:
    assert errata("init", "shares").status == 0
    return tmp_path / "shares"


@pytest.fixture
def running(project: Path, environ: dict[str, str], java: Path) -> Iterator[Dev]:
    found = Dev(project, environ)
    yield found
    if found.process.poll() is None:
        found.process.kill()
        found.process.wait()


@pytest.mark.kafka
def test_a_new_project_shows_its_corrections_and_begins_anew_when_it_is_saved(running: Dev) -> None:
    running.told("6 records sent in 2 epochs")

    def revised() -> bool:
        found = running.ask("arcs/minutes/history")["revisions"]
        return [r["op"] for r in found] == ["insert", "insert", "delete", "replace"]

    running.wait_for(revised)
    running.save('highest="max(price)"', "highest=")
    running.told("syntax error in network.py")
    assert revised()  # what ran goes on
    running.save("highest=,", 'highest="max(price)", lowest="min(price)",')
    running.told("network.py changed: starting anew")
    running.told("6 records sent in 2 epochs", times=2)
    running.wait_for(revised)
    table = running.ask("arcs/minutes")["tuples"]
    assert [(t["highest"], t["lowest"]) for t in table] == [(25.6, 25)]
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(30) == 130
    log = running.log.read_text()
    assert log.rstrip().endswith("all processes have ended")
    assert "Traceback" not in log
    assert not list(running.temporary.glob("errata-dev-*"))


def test_files_with_the_names_of_sources_are_its_input(project: Path) -> None:
    network = load("shares/network.py")
    assert sample_inputs(network, project) == {"prices": [str(project / "prices.jsonl")]}
    (project / "prices.jsonl").rename(project / "prices.csv.gz")
    assert sample_inputs(network, project) == {"prices": [str(project / "prices.csv.gz")]}
    (project / "prices.csv.gz").unlink()
    assert sample_inputs(network, project) == {}


def test_what_is_saved_is_noticed_but_not_in_folders_of_others(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "_LOOK_S", 0.0)
    (project / ".venv").mkdir()
    watched = Watched("shares/network.py", ["shares/prices.jsonl"])
    assert watched.changed() == []
    (project / ".venv" / "x.py").write_text("")
    (project / "notes.txt").write_text("")
    assert watched.changed() == []
    (project / "helper.py").write_text("A = 1\n")
    os.utime(project / "prices.jsonl", ns=(1, 1))
    assert watched.changed() == ["helper.py", "prices.jsonl"]
    (project / "helper.py").unlink()
    assert watched.changed() == ["helper.py"]


def test_modules_beside_a_network_are_loaded_again(project: Path) -> None:
    for name in ("first", "second"):
        (project / "naming.py").write_text(f"NAME = {name!r}\n")
        os.utime(project / "naming.py", ns=(len(name), len(name)))
        (project / "network.py").write_text(
            "from errata import Network\nfrom naming import NAME\nnet = Network(NAME)\n"
        )
        assert load_again("shares/network.py").name == name
    sys.modules.pop("naming")
    (project / "network.py").write_text("import nothing_of_the_kind\n")
    with pytest.raises(ErrataError, match="nothing_of_the_kind"):
        load_again("shares/network.py")
