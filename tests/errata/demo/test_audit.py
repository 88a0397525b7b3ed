"""The audit finds what is planted; the topics are made by hand."""

import subprocess
import sys
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from errata.demo.audit.records import SCHEMAS, AuditError, schemas_of_registry, schemas_of_topic
from errata.demo.audit.verdict import TOPICS, Verdict, judge
from errata.topics import settings
from errata.topics.admin import create_topics
from errata.topics.settings import TopicSpec
from tests.errata.demo import hand_made as made
from tests.errata.demo.hand_made import (
    DOWNSTREAM,
    FIRST,
    LETTERS,
    PROGRESS,
    REVISED,
    SOURCE,
    TRADES,
    UPSTREAM,
)
from tests.registry.apicurio import Apicurio


def judged(topics: made.HandMade) -> Verdict:
    logs = topics.logs()
    return judge(logs, schemas_of_topic(logs[SCHEMAS]))


def complaints(topics: made.HandMade) -> list[str]:
    verdict = judged(topics)
    return verdict.differences + verdict.mode_differences


def test_a_right_network_has_no_differences():
    verdict = judged(made.right())
    assert verdict.clean, verdict.lines()
    assert (verdict.results, verdict.surviving, len(verdict.refused)) == (2, 2, 1)
    assert verdict.lines()[-1] == "audit: 0 differences"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (REVISED, REVISED | {"average": made.Decimal("13.9")}, "wrong: average 13.9"),
        (REVISED, REVISED | {"trades": 3}, "wrong: trades 3 instead of 2"),
        (REVISED, None, "is missing"),
        (FIRST, REVISED | {"trades": 3}, "not chained"),
        (REVISED, REVISED, "changes nothing"),
        (None, REVISED, "not chained"),
    ],
)
def test_a_planted_revision_is_found(before, after, told):
    topics = made.right()
    topics.both(2, (before, after, 6))
    found = complaints(topics)
    assert any(UPSTREAM in line and told in line for line in found), found
    assert any(DOWNSTREAM in line and told in line for line in found), found


def test_a_result_that_is_there_in_two_partitions_is_found():
    topics = made.right()
    topics.both(3, (None, REVISED, 6))
    assert any("exists 2 times" in line for line in complaints(topics))


def test_a_result_without_trades_is_found():
    topics = made.right()
    later = made.total(made.NOON + 60 * made.MINUTE, "1", "1", 1, "1")
    topics.both(3, (None, later, 6))
    assert any("must not exist" in line for line in complaints(topics))


def test_two_revisions_of_a_result_in_one_epoch_are_found():
    topics = made.right()
    topics.both(2, (REVISED, FIRST, 6), (FIRST, REVISED, 6))
    assert any("is the second one in epoch 6" in line for line in complaints(topics))


def test_a_revision_that_one_mode_alone_emits_is_found():
    topics = made.right()
    topics.add(UPSTREAM, 2, made.revision(REVISED, FIRST, task="upstream.2", epoch=6))
    topics.add(UPSTREAM, 2, made.revision(FIRST, REVISED, task="upstream.2", epoch=7))
    verdict = judged(topics)
    assert not verdict.differences
    assert len(verdict.mode_differences) == 2
    assert "was emitted upstream only" in verdict.mode_differences[0]


def test_modes_that_correct_to_other_values_are_found():
    topics = made.right()
    for topic, value in ((UPSTREAM, "1"), (DOWNSTREAM, "2")):
        other = REVISED | {"traded": made.Decimal(value)}
        task = f"{topic.rpartition('_')[2]}.2"
        topics.add(topic, 2, made.revision(REVISED, other, task=task, epoch=6))
        topics.add(topic, 2, made.revision(other, REVISED, task=task, epoch=7))
    verdict = judged(topics)
    assert not verdict.differences
    assert len(verdict.mode_differences) == 2


@pytest.mark.parametrize(("attempt", "epoch"), [(1, 10), (2, 3)])
def test_a_record_that_no_report_covers_does_not_exist(attempt, epoch):
    topics = made.right()
    lost = made.revision(REVISED, None, task="upstream.2", epoch=epoch, attempt=attempt)
    topics.add(UPSTREAM, 2, lost)
    assert complaints(topics) == []


def test_an_exact_copy_counts_once():
    topics = made.right()
    topics.records[UPSTREAM].append(topics.records[UPSTREAM][1])
    assert complaints(topics) == []


def test_the_newest_report_counts_and_not_the_last_one_in_the_log():
    topics = made.right()
    topics.add(PROGRESS, 0, made.newest("upstream.2", committed={0: 1}, watermark=0))
    assert complaints(topics) == []


def test_a_trade_that_the_arc_lost_is_found():
    topics = made.right()
    topics.records[TRADES].pop(0)
    assert any(TRADES in line and "a is missing" in line for line in complaints(topics))


def test_a_refused_record_without_its_dead_letter_is_found():
    topics = made.right()
    topics.records[LETTERS].clear()
    told = "needs one dead letter 'unknown identity', found none"
    assert any(told in line for line in complaints(topics))


def test_a_dead_letter_told_twice_is_found():
    topics = made.right()
    topics.records[LETTERS] *= 2
    assert any("needs one dead letter 'unknown identity', found [" in x for x in complaints(topics))


def test_a_dead_letter_of_a_good_record_is_found():
    topics = made.right()
    (_, record) = topics.records[SOURCE][0]
    topics.add(LETTERS, 0, made.letter(0, 0, record))
    assert any("needs no dead letter" in line for line in complaints(topics))


def test_a_dead_letter_with_other_bytes_is_found():
    topics = made.right()
    topics.records[LETTERS] = [
        (p, letter | {"value": b"?"}) for p, letter in topics.records[LETTERS]
    ]
    assert any("holds other bytes" in line for line in complaints(topics))


@pytest.mark.parametrize(("days", "right"), [(3651, True), (3649, False)])
def test_a_record_refused_for_age_is_listed_if_it_was_old_enough(days, right):
    topics = made.right()
    old = made.trade("old", made.NOON - timedelta(days=days), "5")
    record = {"op": "insert", "before": None, "after": old}
    topics.add(SOURCE, 0, record)
    topics.add(LETTERS, 0, made.letter(0, 2, record, reason="older than keep"))
    verdict = judged(topics)
    assert ("  insert of old" in verdict.lines()) == right
    assert any("needs no dead letter" in line for line in verdict.differences) != right


def test_an_end_that_is_not_processed_yet_is_no_verdict():
    topics = made.right()
    topics.add(PROGRESS, 0, made.newest("downstream.1", committed={1: 10}, watermark=5))
    with pytest.raises(AuditError, match=r"has not been processed by downstream\.1"):
        judged(topics)


@pytest.mark.registry
def test_schemas_are_those_of_a_server_where_there_is_one(apicurio: Apicurio) -> None:
    told = {"op": "insert", "before": None, "after": made.trade("new", made.NOON, "5")}
    number = apicurio.register("audited-value", made.SCHEMA_OF[SOURCE])
    framed = b"\0" + number.to_bytes(4, "big") + made.encode(SOURCE, told)[5:]
    schemas = schemas_of_registry(apicurio.url)
    assert schemas.decode(framed)["after"]["key"] == "new"
    unknown = b"\0" + (number + 9_999).to_bytes(4, "big") + framed[5:]
    for _ in range(2):
        with pytest.raises(ValueError, match=f"schema {number + 9_999} is not in the registry"):
            schemas.decode(unknown)
    with pytest.raises(AuditError, match="no schema registry responds at http"):
        schemas_of_registry("http://127.0.0.1:1").decode(framed)


@pytest.mark.kafka
def test_the_command_reads_a_cluster_and_finds_wrong_missing_and_doubled_results(broker):
    specs = [TopicSpec(t, 4 if t in (SOURCE, TRADES, UPSTREAM, DOWNSTREAM) else 1) for t in TOPICS]
    schemas = TopicSpec(SCHEMAS, 1, settings.compacted())
    create_topics(broker.settings, [schemas, *specs])
    producer = Producer(broker.settings)

    def write(topics: made.HandMade) -> None:
        for topic, entries in topics.logs().items():
            for entry in entries:
                producer.produce(topic, entry.value, entry.key, entry.partition)
        producer.flush()

    def audit() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "errata.demo.audit", "--bootstrap"]
        return subprocess.run(
            [*command, broker.bootstrap_servers], capture_output=True, text=True, check=False
        )

    unready = audit()
    assert (unready.returncode, unready.stdout) == (2, "")
    assert "upstream.0" in unready.stderr, unready.stderr
    write(made.right())
    clean = audit()
    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert "audit: 0 differences" in clean.stdout
    planted = made.HandMade()
    planted.both(2, (REVISED, FIRST, 6), (made.EARLIER, None, 6))
    planted.both(3, (None, REVISED, 6))
    planted.records[DOWNSTREAM].pop(1)
    write(planted)
    dirty = audit()
    assert dirty.returncode == 1
    assert "exists 2 times" in dirty.stdout
    assert f"{UPSTREAM}: CDS USD {made.EARLIER['window_start']} is missing" in dirty.stdout
    assert "modes: 1 differences" in dirty.stdout
