"""`errata revise`: what is sent takes effect, what can't be is refused, a dry run is right."""

import json
from pathlib import Path

import polars as pl
import pytest

from errata import Network
from errata.cli.revise import place_of
from errata.deploy.deployment import DeployedNetwork
from errata.processors.compile.compiler import compile_network
from errata.schemas import revisions as frames
from errata.schemas.partition import partitions
from errata.testing import Driver
from errata.topics import names
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.errata.conftest import Errata, in_memory
from tests.errata.network_file import write_network

MINUTE = 60_000
FIELDS = {"key": "string", "at": "timestamp-millis"}
REVISE = ("revise", "tape.py", "prices")


def price(key: str, at: int, amount: float) -> dict:
    return {"key": key, "at": at * MINUTE, "symbol": "IBM", "price": amount}


def figure(driver: Driver) -> None:
    for at, amount in ((105, 30), (115, 25), (120, 25), (135, 37), (300, 1)):
        driver.send("prices", {"op": "insert", "after": price(f"{at}", at, amount)})
    driver.close_epoch()


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def sent(driver: Driver) -> int:
    return driver.cluster.end(TopicPartition("source.prices", 0))


def test_a_replace_keeps_what_is_not_set_and_names_the_original(
    driver: Driver, errata: Errata
) -> None:
    figure(driver)
    done = errata(*REVISE, "replace", "--key", "120", "--set", "price=22.00", "--json")
    assert (done.status, done.err) == (0, "")
    (told,) = lines(done.out)
    assert told == {
        "op": "replace",
        "before": price("120", 120, 25.0),
        "after": price("120", 120, 22.0),
        "topic": "source.prices",
        "partition": 0,
        "offset": 5,
    }
    driver.revisions("sums")
    driver.close_epoch()
    assert [r["after"]["total"] for r in driver.revisions("sums")] == [77, 59]
    assert driver.dead_letters() == []


def test_a_delete_and_an_insert_take_effect(driver: Driver, errata: Errata) -> None:
    figure(driver)
    assert errata(*REVISE, "delete", '{"key": "120"}').status == 0
    driver.close_epoch()
    assert errata(*REVISE, "insert", json.dumps(price("new", 121, 5))).status == 0
    driver.close_epoch()
    assert [row["key"] for row in driver.table("prices")] == ["105", "115", "135", "300", "new"]
    assert driver.dead_letters() == []
    assert driver.counts()["ingest.prices.0"]["disagreed"] == 0


def test_a_dry_run_sends_nothing_and_tells_what_really_comes(
    driver: Driver, errata: Errata
) -> None:
    figure(driver)
    change = ("replace", '{"key": "120", "price": 22}')
    before = sent(driver)
    done = errata(*REVISE, *change, "--dry-run")
    assert (done.status, sent(driver)) == (0, before)
    first, *others = lines(done.out)
    rest = [line for line in others if "arc" in line]
    ways = [line for line in others if "box" in line]
    assert ways == [{"box": "sums", "fetched": 2}, {"box": "counts", "replayed": 4}]
    assert (first["offset"], first["after"]["price"]) == (None, 22)
    assert "read 5 revisions of 'prices'" in done.err

    assert errata(*REVISE, *change).status == 0
    for arc in ("sums", "counts"):
        driver.revisions(arc)
    driver.close_epoch()
    counts = driver.counts()["prices.0"]
    assert (counts["sums.fetched"], counts["counts.replayed"]) == (2, 4)
    for arc in ("sums", "counts"):
        real = [{**r, "arc": arc} for r in driver.revisions(arc)]
        told = [{**line, "epoch": 2} for line in rest if line["arc"] == arc]
        assert sorted(map(str_of, told)) == sorted(map(str_of, real))
    assert {line["arc"] for line in rest} == {"plain", "sums"}  # the counts stay as they are


def str_of(revision: dict) -> str:
    return json.dumps(revision, sort_keys=True, default=float)


def test_people_read_what_would_change(driver: Driver, errata: Errata, people: None) -> None:
    figure(driver)
    done = errata(*REVISE, "replace", "--key", "120", "--set", "price=22", "--dry-run")
    assert done.out.splitlines() == [
        "prices: replace key=120  price 25.00 -> 22.00",
        "not sent; would go to source.prices, partition 0",
        "sums: replace symbol=IBM window_start=1970-01-01 01:40:00  total 80.00 -> 77.00",
        "sums: replace symbol=IBM window_start=1970-01-01 02:00:00  total 62.00 -> 59.00",
        "plain: replace key=120  price 25.00 -> 22.00",
        "sums: 2 results fetched",
        "counts: 4 tuples replayed",
    ]


def test_a_dry_run_knows_what_was_kept_back(
    tmp_path: Path, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_network(tmp_path)
    within = 'keep="1d", significance={"total": 5, "n": 0}'
    file.write_text(file.read_text().replace('n="count(*)", keep="1d"', f'n="count(*)", {within}'))
    with in_memory(monkeypatch, "tape.py") as driver:
        figure(driver)
        for price in (27, 29, 33):
            driver.revisions("sums")
            change = (*REVISE, "replace", "--key", "120", "--set", f"price={price}")
            told = lines(errata(*change, "--dry-run").out)
            assert errata(*change).status == 0
            driver.close_epoch()
            real = [(r["before"]["total"], r["after"]["total"]) for r in driver.revisions("sums")]
            found = [r for r in told if r.get("arc") == "sums"]
            assert [(r["before"]["total"], r["after"]["total"]) for r in found] == [
                (float(before), float(after)) for before, after in real
            ]
            assert ({"box": "sums-kept", "kept_back": 2} in told) == (price != 33)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["delete", "--key", "z"], "holds no tuple key=z: 5 revisions of its arc were read, none"),
        (["replace", "--key", "z", "--set", "price=1"], "holds no tuple key=z"),
        (["replace", "--key", "120", "--set", "price=25"], "holds key=120 with these values"),
        (["replace", "--key", "120", "--set", "size=1"], "no field 'size': it has key, at, symbol"),
        (["replace", "--key", "120", "--set", "price=1.005"], "would refuse this, undecodable"),
        (["replace", "--key", "120", "--set", "key=b"], "a replace keeps the identity"),
        (["insert", json.dumps(price("120", 1, 2))], "holds key=120 already"),
        (["insert", '{"key": "n"}'], "event time 'at' is null"),
        (["delete"], "needs its identity, key"),
        (["delete", "--key", "120", "--partition", "3"], "has no partition 3: it has 0 to 0"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_sent(
    driver: Driver, errata: Errata, arguments: list[str], told: str
) -> None:
    figure(driver)
    before = sent(driver)
    done = errata(*REVISE, *arguments)
    assert (done.status, done.out) == (1, "")
    assert told in done.err
    assert sent(driver) == before


def test_a_deleted_tuple_is_told_to_be_deleted(driver: Driver, errata: Errata) -> None:
    figure(driver)
    driver.send("prices", {"op": "delete", "before": price("120", 120, 25)})
    driver.close_epoch()
    done = errata(*REVISE, "delete", "--key", "120")
    assert "and its last one, in epoch 2, deletes it" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["upsert", "{}"],
        ["insert", "{"],
        ["insert", "[]"],
        ["replace", "--key", "a", "--set", "price"],
    ],
)
def test_wrong_usage_is_2(driver: Driver, errata: Errata, arguments: list[str]) -> None:
    assert errata(*REVISE, *arguments).status == 2


def test_an_unknown_source_is_told_with_the_known_ones(driver: Driver, errata: Errata) -> None:
    done = errata("revise", "tape.py", "sums", "delete", "--key", "a")
    assert (done.status, done.err) == (
        1,
        "errata: network 'figure' has no source 'sums'; it has: prices\n",
    )
    assert Path("tape.py").exists()


def placed(
    last_task: str | None, *, count: int, asked: int | None = None, rekey: bool = False
) -> tuple[int, str]:
    """Where a new price goes, if its identity's last revision was written by a task."""
    net = Network("n")
    net.source(
        "prices",
        topic="t",
        format="json",
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        rekey=rekey,
    )
    plan = compile_network(net).placed({"prices": count})
    cluster = MemoryCluster()
    cluster.create(names.SCHEMAS_TOPIC, 1)
    found = DeployedNetwork(cluster, plan, SchemaRegistry(cluster), {})
    source = plan.topology.sources["prices"]
    row = {"op": 0, "after.key": "foobar", "after.at": 1}
    revision = pl.DataFrame([row], schema=frames.schema(source.arc.fields))
    last = pl.DataFrame({"task": [] if last_task is None else [last_task]})
    place, why = place_of(found, source, revision, last, asked)
    return place.partition, why


def test_a_tuple_goes_to_the_partition_that_it_came_from() -> None:
    assert placed("ingest.prices.5", count=8) == (5, "arc")
    assert placed("ingest.prices.5", count=8, asked=6) == (6, "option")


@pytest.mark.parametrize("writer", [None, "rekeyed.5", "ingest.prices.9"])
def test_a_tuple_of_unknown_partition_goes_where_kafkas_partitioner_puts_its_key(
    writer: str | None,
) -> None:
    (wanted,) = partitions([b'{"key":"foobar"}'], 8)
    assert wanted != 0
    assert placed(writer, count=8) == (wanted, "key")
    assert placed(writer, count=1) == (0, "only")


def test_where_records_are_brought_together_by_identity_any_partition_does() -> None:
    assert placed(None, count=8, rekey=True) == (0, "any")
