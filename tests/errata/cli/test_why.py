"""`errata why`: a result's revisions, their causes and records, and what it is made of."""

import json
from pathlib import Path

import pytest

from errata.topics.cluster import TopicPartition
from tests.errata.cli.test_revise import REVISE, figure, lines, price
from tests.errata.conftest import Errata, in_memory
from tests.errata.network_file import write_network

WHY = ("why", "tape.py", "sums", "symbol=IBM")
WINDOW = "window=1970-01-01T01:40"


def corrected(driver, errata: Errata, *amounts: float) -> None:
    """Set a price again and again, each time in an epoch of its own."""
    for amount in amounts:
        done = errata(*REVISE, "replace", "--key", "120", "--set", f"price={amount}")
        assert done.status == 0, done.err
        driver.close_epoch()


def test_each_value_has_its_causes_and_their_records(driver, errata):
    figure(driver)
    corrected(driver, errata, 22, 25)
    done = errata(*WHY, WINDOW)
    assert (done.status, done.err) == (0, "")
    last, second, first = lines(done.out)
    assert [told["after"]["total"] for told in (last, second, first)] == [80, 77, 80]
    assert last["causes"] == [
        {
            "source": "prices",
            "op": "replace",
            "before": price("120", 120, 22.0),
            "after": price("120", 120, 25.0),
            "epoch": 3,
            "topic": "source.prices",
            "partition": 0,
            "offset": 6,
            "time_ms": 100,
        }
    ]
    assert (second["causes"][0]["offset"], second["boxes"]) == (5, {"sums": {"fetched": 2}})
    assert [cause["after"]["key"] for cause in first["causes"]] == ["105", "115", "120"]
    assert [cause["offset"] for cause in first["causes"]] == [0, 1, 2]
    assert (first["op"], first["boxes"]) == ("insert", {})


def test_it_tells_what_a_result_is_made_of(driver, errata):
    figure(driver)
    corrected(driver, errata, 22)
    told = lines(errata(*WHY, WINDOW, "--inputs", "--limit", "1").out)
    assert len(told) == 1
    inputs = told[0]["inputs"]["prices"]
    assert [(t["key"], t["price"]) for t in inputs["before"]] == [
        ("105", 30), ("115", 25), ("120", 25),
    ]  # fmt: skip
    assert [(t["key"], t["price"]) for t in inputs["after"]] == [
        ("105", 30), ("115", 25), ("120", 22),
    ]  # fmt: skip


def test_people_read_it(driver, errata, people):
    figure(driver)
    corrected(driver, errata, 22)
    done = errata(*WHY, WINDOW, "--limit", "1", "--inputs")
    assert done.out.splitlines() == [
        "1970-01-01 00:00:00.100 sums: 2 replace symbol=IBM window_start=1970-01-01 01:40:00  "
        "total 80.00 -> 77.00",
        "  because of prices: 2 replace key=120  price 25.00 -> 22.00",
        "    source.prices, partition 0, offset 5, written 1970-01-01 00:00:00.050",
        "  sums: 2 results fetched",
        "  made of 3 tuples of prices before:",
        "    key=105 at=1970-01-01 01:45:00 symbol=IBM price=30.00",
        "    key=115 at=1970-01-01 01:55:00 symbol=IBM price=25.00",
        "    key=120 at=1970-01-01 02:00:00 symbol=IBM price=25.00",
        "  made of 3 tuples of prices after:",
        "    key=105 at=1970-01-01 01:45:00 symbol=IBM price=30.00",
        "    key=115 at=1970-01-01 01:55:00 symbol=IBM price=25.00",
        "    key=120 at=1970-01-01 02:00:00 symbol=IBM price=22.00",
    ]


def test_a_tuple_of_a_source_has_its_own_record(driver, errata):
    figure(driver)
    corrected(driver, errata, 22)
    told = lines(errata("why", "tape.py", "prices", "key=120").out)
    assert [(t["op"], t["causes"][0]["offset"]) for t in told] == [("replace", 5), ("insert", 2)]


def test_a_record_that_is_gone_is_said_to_be_gone(driver, errata, people):
    figure(driver)
    corrected(driver, errata, 22)
    driver.cluster.delete_before(TopicPartition("source.prices", 0), 6)
    done = errata(*WHY, WINDOW, "--limit", "1")
    assert "    its record is no longer in the topic" in done.out.splitlines()


def test_history_that_is_gone_is_said_to_be_gone(driver, errata):
    figure(driver)
    corrected(driver, errata, 22, 25)
    place = TopicPartition(driver.plan.deployment.topic("prices"), 0)
    driver.cluster.delete_before(place, 5)  # all but the last two revisions of one tuple
    (told, *_) = lines(errata(*WHY, WINDOW).out)
    assert (told["is_explained"], told["after"]["total"]) == (False, 80)
    assert "what its sources held then is gone" in told["reason"]
    assert "causes" not in told


def test_revisions_that_are_kept_back_count_for_the_one_that_was_not(
    tmp_path: Path, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_network(tmp_path)
    within = 'keep="1d", emit="on_update", significance={"total": 5, "n": 0}'
    file.write_text(file.read_text().replace('n="count(*)", keep="1d"', f'n="count(*)", {within}'))
    with in_memory(monkeypatch, "tape.py") as driver:
        figure(driver)
        corrected(driver, errata, 27, 29, 33)
        done = errata(*WHY, WINDOW)
        assert done.status == 0, done.err
        last, first = lines(done.out)
        assert [(t["before"]["total"], t["after"]["total"]) for t in [last]] == [(80, 88)]
        assert [cause["after"]["price"] for cause in last["causes"]] == [33]
        assert first["op"] == "insert"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["symbol=IBM"], 1, "has 3 such tuples; name one, by symbol, window_start. Revised last"),
        ([], 1, "symbol=IBM window_start=1970-01-01 02:00:00"),
        (["symbol=XYZ"], 1, "has no revision of such a tuple in its topic"),
        (["price=3"], 2, "a field of the identity of 'sums'"),
        (["symbol"], 2, "FIELD=VALUE"),
        (["window=yesterday"], 2, "'window_start' needs timestamp-millis, found 'yesterday'"),
    ],
)
def test_a_tuple_that_is_not_named_is_refused(driver, errata, words, status, said):
    figure(driver)
    done = errata("why", "tape.py", "sums", *words)
    assert (done.status, done.out) == (status, "")
    assert said in " ".join(done.err.replace("│", " ").split())


def test_an_arc_without_a_topic_is_refused(driver, errata):
    done = errata("why", "tape.py", "nothing")
    assert (done.status, done.out) == (1, "")
    assert "nothing" in done.err


def test_json_is_for_programs_on_a_terminal_too(driver, errata, people):
    figure(driver)
    assert json.loads(errata(*WHY, WINDOW, "--json").out)["arc"] == "sums"
