"""The tables of docs/protocol.md list the fields of the records, all of them, in order."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from errata.processors.wire import dead_letter, replay, report
from errata.processors.wire.plan_records import (
    PlanRecord,
    SettleRecord,
    SwitchRecord,
    WatermarkRecord,
)
from errata.schemas.avro import revision_schema
from errata.schemas.fields import FieldType

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "protocol.md").read_text()
FOLDERS = ("processors", "sweepers", "spark_jobs", "errata", "topics", "schemas", "docs")
COLUMNS = ["type", "unit", "written by", "read by", "meaning"]

SCHEMAS = {
    "2. Revisions": revision_schema("prices", {"price": FieldType("long")}),
    "4. Reports": report.SCHEMA,
    "Request": replay.REQUEST_SCHEMA,
    "Reply": replay.REPLY_SCHEMA,
    "8. Dead letters": dead_letter.SCHEMA,
}
RECORDS = {
    "Key `plan`": PlanRecord,
    "Key `switch`": SwitchRecord,
    "Key `settle`": SettleRecord,
}


def tables(heading: str) -> list[list[list[str]]]:
    """Return the tables below a heading and before the next one: rows of cells."""
    (below,) = re.findall(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)
    found = re.findall(r"(?:^\|.*\|\n)+", below, re.M)
    return [[[c.strip() for c in row[1:-1].split("|")] for row in t.splitlines()] for t in found]


def listed(table: list[list[str]]) -> dict[str, str]:
    """Return the type of each field that a table lists."""
    return {name.strip("`"): kind for name, kind, *_ in table[2:]}


def written(schema: dict) -> dict[str, str]:
    """Return the type of each field of a schema, those of the records in an array below it."""
    found = {}
    for field in schema["fields"]:
        name, kind = field["name"], field["type"]
        if isinstance(kind, list):
            other = kind[1]
            found[name] = "null or " + (other if other in ("string", "bytes") else "tuple")
        elif isinstance(kind, dict):
            found[name] = kind["type"]
            items = kind.get("items")
            if isinstance(items, dict):
                found |= {f"{name}[].{n}": own for n, own in written(items).items()}
        else:
            found[name] = kind
    return found


@pytest.mark.parametrize("heading", SCHEMAS)
def test_a_table_lists_exactly_the_fields_of_its_schema(heading):
    table = tables(heading)[0]
    assert list(listed(table).items()) == list(written(SCHEMAS[heading]).items())


@pytest.mark.parametrize("heading", RECORDS)
def test_a_table_lists_exactly_the_fields_of_its_json_record(heading):
    assert list(listed(tables(heading)[0])) == [field.name for field in fields(RECORDS[heading])]


def test_a_table_lists_the_fields_of_a_watermark_put_back():
    written = [field.name for field in fields(WatermarkRecord) if field.name != "source"]
    assert list(listed(tables("Key `watermark.<source>`")[0])) == written


def test_the_state_that_travels_in_counts_is_listed():
    assert tuple(listed(tables("4. Reports")[1])) == report.WIRE_FIELDS


@pytest.mark.parametrize(
    "heading", [*SCHEMAS, *RECORDS, "Key `end.<source>`", "Key `watermark.<source>`"]
)
def test_each_field_has_its_writer_its_reader_and_its_meaning(heading):
    for table in tables(heading):
        assert table[0][1:] == COLUMNS
        for row in table[2:]:
            assert len(row) == len(table[0]), row
            assert all(cell for place, cell in enumerate(row) if table[0][place] != "unit"), row


def test_what_code_and_docs_refer_to_is_a_heading_of_the_page():
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^##+ (.*)$", PAGE, re.M)
    }
    named = {
        anchor
        for folder in (
            "processors",
            "sweepers",
            "spark_jobs",
            "errata",
            "topics",
            "schemas",
            "docs",
        )
        for suffix in ("py", "md")
        for file in (ROOT / folder).rglob(f"*.{suffix}")
        for anchor in re.findall(r"protocol\.md#([a-z0-9-]+)", file.read_text())
    }
    assert named
    assert named <= anchors
