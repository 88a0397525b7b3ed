"""`errata feed`: lines become records that a source's ingest takes as they were meant."""

import json
from pathlib import Path
from typing import Any

import pytest

from errata import Network
from errata.client import feeding
from errata.client.feeding import Feeder
from errata.processors.compile.compiler import compile_network
from errata.testing import Driver
from errata.topics.memory import MemoryCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import SchemaRegistry
from tests.errata.cli.test_revise import REVISE
from tests.errata.conftest import Errata

FIELDS = {"key": "string", "at": "timestamp-millis", "n": "decimal(9,2)?"}
FORMS = [("native", "json"), ("native", "avro"), ("upsert", "json"), ("upsert", "avro"),
         ("upsert", "csv"), ("debezium", "json"), ("append", "json")]  # fmt: skip


def row(key: str, n: str | None, at: int = 5) -> dict[str, Any]:
    return {"key": key, "at": at, "n": n}


def line(op: str, **sides: Any) -> bytes:
    return json.dumps({"op": op, **sides}).encode()


class Fed:
    """A network in memory whose source has an envelope and a format, and a feeder of it."""

    def __init__(self, envelope: str, form: str) -> None:
        net = Network("fed")
        net.source(
            "rows", topic="rows", fields=FIELDS, identity=["key"], event_time="at", keep="1d",
            envelope=envelope, format=form,
        )  # fmt: skip
        self.registry = SchemaRegistry(cluster := MemoryCluster())
        cluster.create(SCHEMAS_TOPIC, 1)
        self.driver = Driver(net, live=self.registry)
        source = compile_network(net).topology.sources["rows"]
        topic = self.driver.plan.topology.sources["rows"].topic
        self.feeder = Feeder(
            source.__class__(**{**vars(source), "topic": topic}),
            self.driver.cluster,
            self.registry,
            pause_s=0,
        )


@pytest.mark.parametrize(("envelope", "form"), FORMS)
def test_in_every_envelope_and_format_the_source_holds_what_the_lines_say(
    envelope: str, form: str
) -> None:
    fed = Fed(envelope, form)
    with fed.driver as driver:
        pieces = [[line("insert", after=row("a", "1.50")), line("insert", after=row("b", None))]]
        if envelope != "append":
            pieces[0].append(line("delete", before=row("b", None)))
        pieces.append([line("replace", before=row("a", "1.50"), after=row("a", "2.25"))])
        for piece in pieces:
            told = fed.feeder.feed(iter([piece, None]))
            driver.close_epoch()
        assert (told.epochs, told.refused) == (2, {})
        found = {(t["key"], str(t["n"])) for t in driver.table("rows")}
        assert found - {("b", "None")} == {("a", "2.25")}
        replaced = [r for r in driver.revisions("rows") if r["op"] == "replace"]
        assert [str(r["before"]["n"]) for r in replaced] == ["1.50"]
        assert not driver.dead_letters()


def test_lines_that_are_no_revisions_are_counted_and_left_out() -> None:
    fed = Fed("upsert", "avro")
    with fed.driver as driver:
        told = fed.feeder.feed(iter([[b"{", line("insert", after=row("a", "1"))], [b"[]"]]))
        driver.close_epoch()
        assert (told.sent, told.epochs, told.refused) == (1, 1, {"undecodable": 2})
        assert told.first is not None
        assert told.first[0] == 1
        assert [t["key"] for t in driver.table("rows")] == ["a"]


def test_native_lines_are_sent_as_they_are() -> None:
    fed = Fed("native", "json")
    text = b'{"op":"insert",  "after": {"key":"a","at":5,"n":"1.5"}, "note": 1}'
    with fed.driver:
        fed.feeder.feed(iter([[text]]))
        place = next(p for p in fed.driver.cluster._logs if p.startswith("source."))
        log = fed.driver.cluster._logs[place][0]
        records, _ = log.read(0, 10)
        assert records.values == [text]
        assert records.keys[0] == b'{"key":"a"}'


def test_it_keeps_a_pace_and_rests_after_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    rests: list[float] = []

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(feeding.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(feeding.time, "sleep", sleep)
    fed = Fed("native", "json")
    feeder = Feeder(fed.feeder.source, fed.driver.cluster, fed.registry, rate=20, pause_s=1.0)
    lines = [line("insert", after=row(str(n), "1")) for n in range(40)]
    with fed.driver:
        feeder.feed(iter([lines, None, lines, None]))
    assert 4.5 < sum(rests) < 6.5  # 80 records at 20 in a second, and two pauses
    stopped = Feeder(fed.feeder.source, fed.driver.cluster, fed.registry, stop=lambda: True)
    assert stopped.feed(iter([lines])).sent == 0


def test_the_command_sends_files_as_epochs(driver: Driver, errata: Errata, tmp_path: Path) -> None:
    assert REVISE[1] == "tape.py"
    (tmp_path / "a.csv").write_text("key,at,symbol,price\na,300000,IBM,30\nb,1,IBM,x\n")
    (tmp_path / "b.jsonl").write_text(
        '{"op": "replace", "before": {"key": "a", "at": 300000, "symbol": "IBM", "price": 30}, '
        '"after": {"key": "a", "at": 300000, "symbol": "IBM", "price": 31}}\n'
    )
    done = errata("feed", "tape.py", "prices", "a.csv", "b.jsonl", "--pause", "1ms")
    assert (done.status, json.loads(done.out)) == (
        0,
        {"topic": "source.prices", "sent": 2, "epochs": 2, "refused": {"undecodable": 1}},
    )
    assert "left out: 1 undecodable; the first is line 2" in done.err
    driver.close_epoch()
    assert [t["price"] for t in driver.table("prices")] == [31]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["prices", "bad.csv"], 1, "left out: 1 undecodable; the first is line 1"),
        (["none", "bad.csv"], 1, "has no source 'none'; it has: prices"),
        (["prices", "none.csv"], 1, "can't be read: No such file"),
        (["prices", "bad.csv", "--pause", "soon"], 1, "--pause"),
        (["prices"], 2, "Missing argument 'FILE...'"),
    ],
)
def test_what_can_not_be_fed_is_told(
    driver: Driver, errata: Errata, tmp_path: Path, arguments: list[str], status: int, text: str
) -> None:
    (tmp_path / "bad.csv").write_text("key,at,symbol,price\nb,1,IBM,x\n")
    done = errata("feed", "tape.py", *arguments)
    assert (done.status, text in done.err) == (status, True), done.err
