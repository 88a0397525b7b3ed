"""`errata print`: every record of our topics, decoded, and whether it is believed."""

import json

import pytest

from errata.processors.arcs.arc_topic import ArcCodec, Meta
from errata.schemas import revisions as frames
from errata.testing import Driver
from errata.topics.registry import SchemaRegistry
from tests.errata.conftest import Errata


def price(key: str) -> dict:
    return {"op": "insert", "after": {"key": key, "at": 60_000, "symbol": "IBM", "price": 2.5}}


@pytest.fixture
def fed(driver: Driver) -> Driver:
    """Two epochs and a dead letter."""
    driver.send("prices", [price("a"), price("b")])
    driver.send_raw("prices", b"\xff", b"its key")
    driver.close_epoch()
    driver.send("prices", {"op": "delete", "before": {"key": "a"}})
    driver.close_epoch()
    return driver


def printed(errata: Errata, *arguments: str) -> list[dict]:
    done = errata("print", "tape.py", *arguments)
    assert (done.status, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def test_an_arc_is_printed_with_keys_hidden_parts_and_tombstones(
    fed: Driver, errata: Errata
) -> None:
    fed.end()  # readers have passed the delete: its tombstone may be written
    found = printed(errata, "prices")
    assert [(r["key"]["key"], r["value"] and r["value"]["op"]) for r in found[:3]] == [
        ("a", "insert"),
        ("b", "insert"),
        ("a", "delete"),
    ]
    assert found[0]["value"]["after"] == price("a")["after"]
    assert found[0]["value"]["before"] is None
    assert [r["believed"] for r in found[:3]] == [True] * 3
    assert all(r["value"] is None and "believed" not in r for r in found[3:])
    assert "__rows" in printed(errata, "sums")[0]["value"]["after"]


def test_a_record_that_no_report_covers_is_printed_as_not_believed(
    fed: Driver, errata: Errata
) -> None:
    codec = ArcCodec(fed.plan.topology.arcs["prices"], "figure.prices", SchemaRegistry(fed.cluster))
    again = fed._history("prices").head(1).select(list(frames.schema(codec.arc.fields)))
    keys, values = codec.encode(again, Meta("ingest.prices.0", 9, 1))
    fed.cluster.send("figure.prices", partition=0, key=keys[0], value=values[0])
    fed.cluster.send("figure.prices", partition=0, key=b"x", value=b"a stranger's \xff")
    *_, dead, stranger = printed(errata, "prices")
    assert (dead["believed"], dead["value"]["attempt"]) == (False, 9)
    assert stranger["value"] == {"base64": "YSBzdHJhbmdlcidzIP8="}
    assert "believed" not in stranger


@pytest.mark.parametrize(
    ("topic", "seen"),
    [
        ("progress", lambda r: r["value"]["task"] == r["key"] and "done" in r["value"]),
        ("plan", lambda r: r["key"] == "plan" and r["value"]["plan"]["network"] == "figure"),
        ("schemas", lambda r: r["value"]["schema"]["type"] == "record"),
        ("dead-letters", lambda r: r["value"]["reason"] and r["believed"]),
    ],
)
def test_each_of_a_networks_own_topics_can_be_printed(
    fed: Driver, errata: Errata, topic: str, seen
) -> None:
    found = printed(errata, topic)
    assert found
    assert all(map(seen, found))


def test_offset_and_limit_choose_records(fed: Driver, errata: Errata) -> None:
    whole = printed(errata, "prices")
    assert printed(errata, "prices", "--limit", "2") == whole[:2]
    second = whole[1]["offset"]
    assert printed(errata, "prices", "--offset", str(second), "--limit", "1") == whole[1:2]
    assert printed(errata, "prices", "--offset", "9999") == []


def test_people_read_a_line_a_record(fed: Driver, errata: Errata, people: None) -> None:
    first = errata("print", "tape.py", "prices", "--limit", "1").out
    assert "0:0 1970-01-01 00:00:00.050 committed {" in first
    assert first.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["x"], "no topic 'x': it has prices, sums, plain, counts, progress, plan, dead-letters"),
        (["prices", "--partition", "4"], "topic 'figure.prices' has no partition 4: it has 0 to 0"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    driver: Driver, errata: Errata, arguments: list[str], told: str
) -> None:
    done = errata("print", "tape.py", *arguments)
    assert (done.status, done.out) == (1, "")
    assert told in done.err
