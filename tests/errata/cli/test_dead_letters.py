"""`errata dead-letters`: what was refused, listed, shown and sent again, byte for byte."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata import Network, python
from errata.client.dead_letters import Acknowledged
from errata.deploy.deployment import DeployedNetwork
from errata.processors.plan.deployed import deploy
from errata.processors.wire.dead_letter import decode, encode
from errata.testing import Driver
from errata.topics.cluster import TopicPartition
from errata.topics.registry import SchemaRegistry
from tests.errata.conftest import Errata

PLACE = TopicPartition("source.prices", 0)
LATE = b'{"op": "delete", "before": {"key": "later"}}'

DEAD = TopicPartition("figure.dead-letters", 0)


def insert(key: str) -> dict:
    return {"op": "insert", "after": {"key": key, "at": 60_000, "symbol": "IBM", "price": 2}}


@pytest.fixture
def fed(driver: Driver) -> Driver:
    """Refused: bytes that are no text, and twice a delete of what came only later."""
    driver.send("prices", insert("a"))
    driver.send_raw("prices", b"\xff", b"its key")
    driver.send_raw("prices", LATE)
    driver.send_raw("prices", LATE)
    driver.close_epoch()
    driver.send("prices", insert("later"))
    driver.close_epoch()
    return driver


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("word", [["list"], []])
def test_the_list_is_meant_when_no_command_is_named(
    fed: Driver, errata: Errata, word: list[str]
) -> None:
    done = errata("dead-letters", *word, "tape.py", "--json")
    assert (done.status, done.err) == (0, "")
    assert [(x["reason"], x["offset"]) for x in lines(done.out)] == [
        ("undecodable", 1),
        ("unknown identity", 2),
        ("unknown identity", 3),
    ]


def test_a_letter_that_no_report_covers_is_none(fed: Driver, errata: Errata) -> None:
    known = errata("dead-letters", "tape.py").out
    topic = "figure.dead-letters"
    (records,) = fed.cluster.reader({TopicPartition(topic, 0): 0}).poll()
    head, letter = records.values[0][:5], decode(records.values[0][5:])
    for ghost in (replace(letter, attempt=9), replace(letter, epoch=99)):
        fed.cluster.send(topic, partition=0, key=None, value=head + encode(ghost))
    fed.cluster.send(topic, partition=0, key=None, value=b"a stranger's")
    assert errata("dead-letters", "tape.py").out == known


def test_what_is_no_dead_letter_is_told_and_the_others_are_listed(
    fed: Driver, errata: Errata, caplog: pytest.LogCaptureFixture
) -> None:
    known = errata("dead-letters", "tape.py").out
    place = TopicPartition("figure.dead-letters", 0)
    fed.cluster.send(*place[:1], partition=0, key=None, value=b"\xff")
    offset = fed.cluster.end(place) - 1
    done = errata("dead-letters", "tape.py")
    assert (done.status, done.out) == (0, known)
    assert "1 records of topic 'figure.dead-letters' are no dead letters" in caplog.text
    assert f"at offset {offset}" in caplog.text


def test_options_may_come_first_when_no_command_is_named(fed: Driver, errata: Errata) -> None:
    listed = errata("dead-letters", "tape.py", "--json")
    assert errata("dead-letters", "--json", "tape.py") == listed


def test_one_is_shown_in_full_and_decoded_if_it_can_be(fed: Driver, errata: Errata) -> None:
    (first,) = lines(errata("dead-letters", "show", "tape.py", "0:1").out)
    assert (first["key"], first["value_base64"]) == ("its key", "/w==")
    assert first["value_decoded"] == {"base64": "/w=="}
    (second,) = lines(errata("dead-letters", "show", "tape.py", "source.prices:0:2").out)
    assert second["value_decoded"] == json.loads(LATE)
    assert second["detail"] == "the arc holds no tuple of this identity"


def test_people_see_the_bytes_too(fed: Driver, errata: Errata, people: None) -> None:
    done = errata("dead-letters", "show", "tape.py", "0:1")
    assert "69 74 73 20 6b 65 79" in done.out
    assert "undecodable" in errata("dead-letters", "tape.py").out


def test_resent_records_are_the_same_bytes_and_are_taken_in(fed: Driver, errata: Errata) -> None:
    end = fed.cluster.end(PLACE)
    done = errata("dead-letters", "resend", "tape.py", "--reason", "unknown identity")
    assert (done.status, done.err) == (0, "")
    assert done.out == "1 of 3 dead letters sent; 1 left out, equal to one of these\n"
    (records,) = fed.cluster.reader({PLACE: end}).poll()
    assert (records.keys, records.values) == ([None], [LATE])
    fed.close_epoch()
    assert [row["key"] for row in fed.table("prices")] == ["a"]
    assert len(fed.dead_letters()) == 3


def test_all_or_one_can_be_resent_and_a_dry_run_sends_nothing(fed: Driver, errata: Errata) -> None:
    end = fed.cluster.end(PLACE)
    done = errata("dead-letters", "resend", "tape.py", "--all", "--dry-run")
    assert done.out == "2 of 3 dead letters would be sent; 1 left out, equal to one of these\n"
    assert fed.cluster.end(PLACE) == end
    done = errata("dead-letters", "resend", "tape.py", "--at", "0:1", "--json")
    assert lines(done.out) == [
        {"topic": "source.prices", "partition": 0, "offset": 1, "sent_as": end}
    ]
    (records,) = fed.cluster.reader({PLACE: end}).poll()
    assert (records.keys, records.values) == ([b"its key"], [b"\xff"])


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["show", "tape.py", "0:7"], 1, "no dead letter has the place 0:7; the newest have: "),
        (["show", "tape.py", "seven"], 2, ""),
        (["resend", "tape.py"], 2, ""),
        (["resend", "tape.py", "--reason", "x"], 1, "undecodable, unknown identity"),
        (["resend", "tape.py", "--at", "0:0"], 1, "no dead letter has the place 0:0"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    fed: Driver, errata: Errata, arguments: list[str], status: int, told: str
) -> None:
    end = fed.cluster.end(PLACE)
    done = errata("dead-letters", *arguments)
    assert (done.status, done.out) == (status, "")
    assert told in done.err
    assert fed.cluster.end(PLACE) == end


# -------------------------------------------------------------------------------- tuples of boxes


def one_by(price: int) -> int:
    return 1 // price


@pytest.fixture
def brittle(errata: Errata, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Refused: bytes that are no text, and by a box the tuple of price 0."""
    net = Network("brittle")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    prices = net.source("prices", identity=["key"], event_time="at", keep="1d", fields=fields)
    prices.map("scaled", share=python(one_by, "long", "price"))
    with Driver(net) as running:
        deploy(running.cluster, running.plan)
        found = DeployedNetwork(running.cluster, running.plan, SchemaRegistry(running.cluster), {})
        monkeypatch.setattr("errata.cli.app.open_deployment", lambda net: found)
        running.send_raw("prices", b"\xff")
        for key, price in (("a", 1), ("b", 0)):
            line = {"op": "insert", "after": {"key": key, "at": 60_000, "price": price}}
            running.send("prices", line)
        running.close_epoch()
        yield running


def test_a_tuple_that_a_box_refused_is_listed_with_its_arc(brittle: Driver, errata: Errata) -> None:
    done = errata("dead-letters", "tape.py", "--json")
    assert (done.status, done.err) == (0, "")
    (letter,) = [x for x in lines(done.out) if x["reason"] == "function raised"]
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("brittle.prices", 0, -1)
    assert letter["detail"].startswith("box 'scaled', epoch 1: function python:")


def test_its_record_is_shown_decoded(brittle: Driver, errata: Errata) -> None:
    (shown,) = lines(errata("dead-letters", "show", "tape.py", "brittle.prices:0:-1").out)
    assert shown["key_decoded"] == {"key": "b"}
    assert (shown["value_decoded"]["op"], shown["value_decoded"]["after"]["key"]) == ("insert", "b")


@pytest.mark.parametrize("how", [("--reason", "function raised"), ("--at", "0:-1")])
def test_it_is_not_sent_again(brittle: Driver, errata: Errata, how: tuple[str, str]) -> None:
    done = errata("dead-letters", "resend", "tape.py", *how)
    assert (done.status, done.out) == (1, "")
    assert "a tuple that a box refused (function raised) can't be sent again" in done.err


def test_all_are_all_records_and_the_tuples_are_told(brittle: Driver, errata: Errata) -> None:
    done = errata("dead-letters", "resend", "tape.py", "--all")
    assert done.out == "1 of 2 dead letters sent; 1 that boxes refused can't be sent\n"


def test_status_counts_it(brittle: Driver, errata: Errata) -> None:
    (found,) = lines(errata("status", "tape.py", "--json").out)
    (counts,) = [t["counts"] for t in found["tasks"] if "scaled.refused" in t["counts"]]
    assert (counts["dead_letters"], counts["scaled.refused"]) == (1, 1)


def test_some_can_be_listed_and_counted(fed: Driver, errata: Errata) -> None:
    def places(*options: str) -> list[int]:
        done = errata("dead-letters", "tape.py", *options)
        assert done.status == 0, done.err
        return [json.loads(line)["offset"] for line in done.out.splitlines()]

    every = places()
    assert places("--reason", "undecodable") == every[:1]
    assert places("--contains", "later") == every[1:]
    assert places("--topic", "source.prices") == every
    assert places("--topic", "none") == []
    assert places("--since", "2000-01-01") == []
    counted = errata("dead-letters", "tape.py", "--count").out.splitlines()
    assert list(map(json.loads, counted)) == [
        {"reason": "unknown identity", "count": 2},
        {"reason": "undecodable", "count": 1},
    ]
    text = errata("dead-letters", "tape.py", "--text").out
    assert "dead letters of figure" in text
    assert "2 unknown identity, 1 undecodable" in text


def test_acknowledged_ones_are_left_out_until_all_are_asked_for(
    fed: Driver, errata: Errata
) -> None:
    def count(*options: str) -> int:
        return len(errata("dead-letters", "tape.py", *options).out.splitlines())

    done = errata("dead-letters", "acknowledge", "tape.py", "--reason", "undecodable")
    assert (done.status, done.out) == (0, "1 acknowledged; 2 are open\n")
    assert (count(), count("--all")) == (2, 3)
    assert "1 acknowledged ones are not listed (--all)" in errata(
        "dead-letters", "tape.py", "--text"
    ).out.replace("\n", " ")
    again = errata("dead-letters", "acknowledge", "tape.py", "--all")
    assert again.out == "2 acknowledged; 0 are open\n"
    assert (count(), fed.cluster.groups["figure.dead-letters"]) == (
        0,
        {DEAD: 3},
    )
    fed.send_raw("prices", b"a new one")
    fed.close_epoch()
    assert count() == 1
    assert errata("dead-letters", "acknowledge", "tape.py").status == 2
    assert (
        "has no dead letter with reason"
        in errata("dead-letters", "acknowledge", "tape.py", "--reason", "none").err
    )


@given(
    known=st.sets(st.integers(0, 60)),
    steps=st.lists(st.sets(st.integers(0, 60)), max_size=4),
)
def test_any_of_them_can_be_acknowledged_and_a_note_tells_which(
    known: set[int], steps: list[set[int]]
) -> None:
    state, done = Acknowledged(), set[int]()
    for step in steps:
        chosen = step & known
        state = Acknowledged.parse(str(state.and_these(chosen, known=sorted(known))))
        done |= chosen
        assert {offset for offset in known if offset in state} == done
    assert 1_000 not in state


def test_a_note_that_is_none_acknowledges_nothing() -> None:
    for text in ("", "x", "1 2-", "5 1-999999999999999999", "-1"):
        assert Acknowledged.parse(text) == Acknowledged()


def test_many_are_corrected_by_a_file(fed: Driver, errata: Errata, tmp_path: Path) -> None:
    edited = []
    for number, line in enumerate(lines(errata("dead-letters", "tape.py").out)):
        after = {"key": f"k{number}", "at": 5, "symbol": "IBM", "price": 1}
        line["value"] = json.dumps({"op": "insert", "after": after})
        edited.append({name: line[name] for name in ("topic", "partition", "offset", "value")})
    (tmp_path / "edited.jsonl").write_text("\n".join(map(json.dumps, edited)))
    done = errata("dead-letters", "resend", "tape.py", "--from", "edited.jsonl")
    assert (done.status, done.out) == (0, "3 of 3 dead letters sent\n")
    fed.close_epoch()
    assert {"k0", "k1", "k2"} <= {row["key"] for row in fed.table("prices")}
    for text, told in (
        ("{}", "line 1 needs a JSON object with topic, partition, offset"),
        (
            '{"topic": "t", "partition": 0, "offset": 99, "value": "x"}',
            "no dead letter has the place",
        ),
        ('{"topic": "t", "partition": 0, "offset": 1, "value_base64": "%"}', "line 1 needs"),
    ):
        (tmp_path / "edited.jsonl").write_text(text)
        wrong = errata("dead-letters", "resend", "tape.py", "--from", "edited.jsonl")
        assert (wrong.status, told in wrong.err) == (1, True), wrong.err
    both = errata("dead-letters", "resend", "tape.py", "--all", "--from", "edited.jsonl")
    assert both.status == 2
