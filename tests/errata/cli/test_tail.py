"""`errata tail`: revisions that exist, epoch by epoch, and nothing else."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from errata import Stream, read
from errata.deploy.deployment import DeployedNetwork
from errata.processors.arcs.arc_topic import ArcCodec, Meta
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import PlanMismatchError
from errata.schemas import revisions as frames
from errata.settings.loading import load
from errata.testing import Driver
from errata.topics.registry import SchemaRegistry
from tests.errata.conftest import Errata
from tests.plans import with_topology

MINUTE = 60_000
TAIL = ("tail", "tape.py", "sums", "--from-beginning", "--no-follow")


def price(key: str, at: int, amount: int) -> dict:
    return {"key": key, "at": at * MINUTE, "symbol": "IBM", "price": amount}


def figure(driver: Driver) -> None:
    """Figure 1: four prices in one epoch, then one of them is corrected."""
    for at, amount in ((105, 30), (115, 25), (120, 25), (135, 37), (300, 1)):
        driver.send("prices", {"op": "insert", "after": price(f"{at}", at, amount)})
    driver.close_epoch()
    was, now = price("120", 120, 25), price("120", 120, 22)
    driver.send("prices", {"op": "replace", "before": was, "after": now})
    driver.close_epoch()


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_a_topic_holds_is_what_the_driver_tells_and_then_the_command_ends(
    driver: Driver, errata: Errata
) -> None:
    figure(driver)
    done = errata(*TAIL)
    assert (done.status, done.err) == (0, "")
    told = lines(done.out)
    assert [(x["epoch"], x["op"]) for x in told] == [
        (x["epoch"], x["op"]) for x in driver.revisions("sums")
    ]
    assert {x["epoch"] for x in told} == {1, 2}
    assert [x["after"]["total"] for x in told if x["op"] == "replace"] == [77, 59]
    assert not any("__" in name for x in told for name in x.get("after", {}))


@pytest.mark.parametrize(("option", "count"), [("--limit", 1), ("--limit", 4), ("--limit", 99)])
def test_a_limit_ends_after_so_many_revisions(
    driver: Driver, errata: Errata, option: str, count: int
) -> None:
    figure(driver)
    every = lines(errata(*TAIL).out)
    assert lines(errata(*TAIL, option, str(count)).out) == every[:count]


def test_epochs_are_given_whole_and_following_ends_when_there_were_enough(
    driver: Driver, errata: Errata
) -> None:
    figure(driver)
    done = errata("tail", "tape.py", "sums", "--from-beginning", "--epochs", "1")
    assert {line["epoch"] for line in lines(done.out)} == {1}
    both = errata("tail", "tape.py", "sums", "--from-beginning", "--epochs", "2")
    assert lines(both.out) == lines(errata(*TAIL).out)


def test_a_record_that_no_report_covers_is_not_shown(driver: Driver, errata: Errata) -> None:
    figure(driver)
    before = lines(errata(*TAIL).out)
    codec = ArcCodec(
        driver.plan.topology.arcs["sums"], "figure.sums", SchemaRegistry(driver.cluster)
    )
    again = driver._history("sums").head(1).select(list(frames.schema(codec.arc.fields)))
    keys, values = codec.encode(again, Meta("prices.0", 77, 2))
    driver.cluster.send("figure.sums", partition=0, key=keys[0], value=values[0])
    driver.send("prices", {"op": "insert", "after": price("late", 110, 5)})
    driver.close_epoch()
    after = lines(errata(*TAIL).out)
    assert after[: len(before)] == before
    assert {line["epoch"] for line in after[len(before) :]} == {3}


def test_without_from_beginning_only_what_comes_is_shown(driver: Driver, errata: Errata) -> None:
    figure(driver)
    done = errata("tail", "tape.py", "sums", "--no-follow")
    assert (done.status, done.out, done.err) == (0, "", "")


def test_people_read_a_line_a_revision_with_what_has_changed(
    driver: Driver, errata: Errata, people: None
) -> None:
    figure(driver)
    *_, last = errata(*TAIL).out.splitlines()
    assert last == ("2 replace symbol=IBM window_start=1970-01-01 02:00:00  total 62.00 -> 59.00")


def test_people_read_when_an_epoch_is_over(driver: Driver, errata: Errata, people: None) -> None:
    figure(driver)
    told = errata(*TAIL, "--complete").out.splitlines()
    assert [line.split()[:2] for line in told] == [
        *[["1", "insert"]] * 3, ["1", "complete"], *[["2", "replace"]] * 2, ["2", "complete"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["nothing"], 1, "network 'figure' has no arc 'nothing'; it has: prices, sums"),
        (["sums", "--limit", "0"], 2, ""),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    driver: Driver, errata: Errata, arguments: list[str], status: int, told: str
) -> None:
    done = errata("tail", "tape.py", *arguments)
    assert (done.status, done.out) == (status, "")
    assert told in done.err


FOLLOW = """
import sys
from errata.cli.entry import main
from errata.cli import app
from errata.deploy.deployment import DeployedNetwork
from errata.settings.loading import load
from errata.testing import Driver
from errata.processors.plan.deployed import deploy
from errata.topics.registry import SchemaRegistry

driver = Driver(load("tape.py"))
deploy(driver.cluster, driver.plan)
driver.send("prices", {"op": "insert", "after":
    {"key": "a", "at": 5, "symbol": "IBM", "price": 1}})
driver.close_epoch()
found = DeployedNetwork(driver.cluster, driver.plan, SchemaRegistry(driver.cluster), {})
app.open_deployment = lambda net: found
sys.argv = ["errata", "tail", "tape.py", "prices", "--from-beginning"]
main()
"""


def test_ctrl_c_ends_it_with_130_and_says_nothing(tmp_path: Path, environ: dict[str, str]) -> None:
    from tests.errata.network_file import write_network

    write_network(tmp_path)
    running = subprocess.Popen(
        [sys.executable, "-c", FOLLOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environ,
    )
    assert running.stdout is not None
    assert json.loads(running.stdout.readline())["after"]["key"] == "a"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize(
    "command",
    [
        ["tail", "tape.py", "prices", "--no-follow"],
        ["tail", "tape.py", "prices", "--from-beginning", "--no-follow"],
        ["revise", "tape.py", "prices", "delete", "--key", "120"],
        ["reconcile", "tape.py"],
        None,
    ],
)
def test_fields_in_another_order_than_is_written_are_told_and_nothing_is_registered(
    driver: Driver, errata: Errata, monkeypatch: pytest.MonkeyPatch, command: list[str] | None
) -> None:
    """Of records by another schema nothing would be read, as if the arc were empty."""
    figure(driver)
    text, start = Path("tape.py").read_text(), '"key": "string", "at": "timestamp-millis", '
    assert start in text
    Path("tape.py").write_text(text.replace(start, '"at": "timestamp-millis", "key": "string", '))
    net, registry = load("tape.py"), SchemaRegistry(driver.cluster)
    plan = compile_network(net, every_arc=True).placed({"prices": 1})
    prices = replace(plan.topology.sources["prices"], topic="source.prices")
    plan = with_topology(plan, sources={"prices": prices})
    found = DeployedNetwork(driver.cluster, plan, registry, {"bootstrap.servers": "memory"})
    for name in ("errata.cli.app.open_deployment", "errata.client.reading.open_network"):
        monkeypatch.setattr(name, lambda *_: found)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "memory")
    before = registry.latest("figure.prices-value")
    assert errata("status", "tape.py", "--json").status == 0
    if command is None:
        with pytest.raises(PlanMismatchError, match="with its fields in another order, key, at, s"):
            read(Stream(net, "prices"))
    else:
        done = errata(*command)
        assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
        assert "is deployed with its fields in another order, key, at, symbol, price" in done.err
    assert SchemaRegistry(driver.cluster).latest("figure.prices-value") == before
