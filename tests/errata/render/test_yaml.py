"""What is written as YAML is read as the same by the parser that comes with Spark."""

import json
import random
import string

import pytest

from errata.render.yaml import to_yaml

LETTERS = string.printable + "_ä漢\x00\x07\x7f\x85\u2028\ufeff"
WORDS = ["yes", "No", "null", "~", "1", "0x1f", "1e3", "2026-01-01", "1:30", "-", "=", "on", "N"]
WORDS += ["y", ".5", ".inf", "_", "1_000", "---", "...", "|", ">", "!x", "&x", "*x"]
WORDS += ["", "- a", "a: b", "a #b", " a", "a ", "\na", "\n", " a\n b\n", "\n\na", "a\n\n", "a\n "]
WORDS += ["\ta\n", "a\r\nb", "x: |\n  y\n", "a\n\n\nb", "a\n---\nb\n"]


def some(rng: random.Random, depth: int = 3):
    kind = rng.randrange(6 if depth else 4)
    if kind == 0:
        return rng.choice([None, True, False, 0, -7, 2**40])
    if kind == 1:
        return rng.choice(WORDS)
    if kind < 4:
        return "".join(rng.choices(LETTERS, k=rng.randrange(20)))
    if kind == 4:
        return [some(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {f"{some(rng, 0)}{i}": some(rng, depth - 1) for i in range(rng.randrange(4))}


@pytest.mark.spark
def test_any_data_is_read_as_it_was_written(spark):
    jvm, rng = spark._jvm, random.Random(3)
    given = [*WORDS, *([word] for word in WORDS), *({"a": [{"b": word}]} for word in WORDS)]
    given += [some(rng) for _ in range(300)]
    to_json = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    for data in given:
        text = to_yaml([data])
        found = jvm.org.yaml.snakeyaml.Yaml().load(text)
        assert json.loads(to_json.writeValueAsString(found)) == [data], text
