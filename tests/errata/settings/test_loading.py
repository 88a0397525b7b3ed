"""A network that can't be loaded is one clear line, and an exit status of 1."""

import sys
from pathlib import Path

import pytest

from errata.processors.declare.faults import NetworkError
from errata.settings.loading import LoadError, load
from tests.errata.conftest import Errata
from tests.errata.network_file import write_network

ONE = "from errata import Network\nnet = same = Network('one')\n"
TWO = ONE + "other = Network('two')\n"


@pytest.mark.parametrize(
    ("reference", "text", "told"),
    [
        ("none.py", None, "can't read 'none.py': No such file or directory"),
        ("none", None, "no such file; give a file, or module:name"),
        ("tape.py", "x = 1\ny = (\n", "syntax error in tape.py, line 2: '(' was never closed"),
        ("tape.py", "x = 1\n\nnope\n", "tape.py, line 3: NameError: name 'nope' is not defined"),
        (
            "tape.py",
            "from errata import Network\nNetwork('x').source('a', kep='1d')\n",
            "Network.source() got an unexpected keyword argument 'kep'; write keep=",
        ),
        (
            "tape.py",
            "from errata import Network\nNetwork('x').source('a').where('b', 'true', xyz=1)\n",
            "Stream.where() got an unexpected keyword argument 'xyz'; it has scope, place, keep",
        ),
        ("tape.py", "raise SystemExit(0)", "tape.py, line 1: SystemExit: 0"),
        ("tape.py", "import nomodule_x", "line 1: ModuleNotFoundError: No module named"),
        ("tape.py", "x = 1", "has no network; write net = Network('...') in it"),
        ("tape.py", TWO, "has 2 networks; say which: tape.py:net or tape.py:same or tape.py:other"),
        ("tape.py:nope", TWO, "has no network named 'nope'; it has net, same, other"),
        ("nomodule_x:net", None, "no module 'nomodule_x', neither installed nor in this folder"),
        ("json:net", None, "json has no network named 'net'; it has none"),
    ],
)
def test_what_keeps_a_network_from_loading_is_one_line(
    tmp_path: Path, errata: Errata, reference: str, text: str | None, told: str
) -> None:
    if text is not None:
        (tmp_path / "tape.py").write_text(text)
    done = errata("explain", reference)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"errata: network '{reference}': ")
    assert told in done.err
    assert done.err.count("\n") == 1


def test_the_only_network_of_a_file_needs_no_name(tmp_path: Path) -> None:
    file = tmp_path / "tape.py"
    file.write_text(ONE)
    assert load(str(file)).name == "one"


def test_a_name_picks_one_of_several(tmp_path: Path) -> None:
    file = tmp_path / "tape.py"
    file.write_text(TWO)
    assert load(f"{file}:other").name == "two"


def test_a_module_is_found_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_a_tape.py").write_text(TWO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load("module_of_a_tape:other").name == "two"


def test_a_file_finds_its_neighbours_and_they_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_a_tape.py").write_text("name = 'near'")
    (tmp_path / "this.py").write_text("raise SystemExit('hidden')")  # a module nobody has loaded
    file = tmp_path / "tape.py"
    file.write_text(
        "import this, neighbour_of_a_tape\nfrom errata import Network\n"
        "net = Network(neighbour_of_a_tape.name)"
    )
    assert load(str(file)).name == "near"


def test_a_declaration_that_is_refused_says_so_itself(tmp_path: Path) -> None:
    file = tmp_path / "tape.py"
    file.write_text("from errata import Network\nnet = Network('no good')\n")
    with pytest.raises(NetworkError, match="needs a name of letters"):
        load(str(file))


def test_a_file_that_is_changed_is_read_again(tmp_path: Path) -> None:
    file = write_network(tmp_path, name="first")
    assert load(str(file)).name == "first"
    write_network(tmp_path, name="other")  # as long as the other one, within the same second
    assert load(str(file)).name == "other"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file"):
        load(str(tmp_path))
