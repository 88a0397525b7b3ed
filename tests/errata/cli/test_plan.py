"""`errata plan` says what `errata deploy` then does, and does nothing itself."""

import json
import re
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from errata.topics.admin import create_topics, present_topics, topic_settings
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec
from tests.errata.conftest import Errata

pytestmark = pytest.mark.kafka

NETWORK = """
from errata import Network, tumbling

net = Network("NAME")
prices = net.source(
    "prices", topic="NAME-prices", format="json", keep="1d", identity=["key"], event_time="at",
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
    PARTITIONS
)
prices.aggregate("sums", by=["symbol"], window=tumbling("1m"), total="sum(price)", keep="1d").sink(
    "NAME-out", envelope="upsert"
)
"""
KAFKAS = {"__consumer_offsets", "__transaction_state"}
MORE = 'prices.where("more", "price > 1")\n'


@pytest.fixture
def on(broker: EmbeddedBroker, errata: Errata, monkeypatch: pytest.MonkeyPatch) -> Errata:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    return errata


def declare(folder: Path, name: str, *, partitions: int | None = None, more: str = "") -> None:
    given = "" if partitions is None else f"partitions={partitions},"
    text = NETWORK.replace("NAME", name).replace("PARTITIONS", given)
    (folder / "net.py").write_text(text + more)


def told(on: Errata, *arguments: str, status: int = 0) -> dict:
    ended = on("plan", "net.py", *arguments)
    assert ended.status == status, ended.err
    return json.loads(ended.out)


def test_what_is_planned_is_what_is_deployed(on: Errata, broker: EmbeddedBroker, tmp_path: Path):
    kafka = broker.settings
    declare(tmp_path, "planned")
    missing = told(on, status=1)
    assert missing["user_topics"][0] == {
        "kind": "source", "topic": "planned-prices", "partitions": None,
    }  # fmt: skip
    create_topics(kafka, [TopicSpec("planned-prices", 2)])
    before = present_topics(kafka)
    first = told(on)
    assert told(on, "--check", status=1) == first
    assert present_topics(kafka).keys() == before.keys()
    assert (first["deployed"], first["version"], first["does_something"]) == (None, 1, True)
    assert set(first["schemas"].values()) == {"new"}
    assert on("deploy", "net.py").status == 0
    after = present_topics(kafka)
    made = {topic["topic"]: topic["partitions"] for topic in first["create"]}
    assert made == {name: after[name] for name in after.keys() - before.keys() - KAFKAS}
    assert {"planned.prices", "planned.plan", "planned-out"} <= made.keys()
    settings = topic_settings(kafka, made)
    for topic in first["create"]:
        assert topic["settings"].items() <= settings[topic["topic"]].items()

    again = told(on, "--check")
    assert (again["deployed"], again["version"], again["does_something"]) == (1, 1, False)
    assert (again["create"], again["differ"], again["changes"]) == ([], [], [])
    assert again["schemas"].keys() == first["schemas"].keys()
    assert (again["scopes"], again["sweepers"]) == (["ingest.prices", "prices"], ["prices", "sums"])

    declare(tmp_path, "planned", partitions=3)
    move = told(on, "--check", status=1)
    assert (move["deployed"], move["version"]) == (1, 2)
    assert {c["name"]: (c["before"], c["after"]) for c in move["changes"]} == {
        "prices": (2, 3),
        "sums": (2, 3),
    }
    assert present_topics(kafka) == after
    assert on("deploy", "net.py").status == 0
    moved = present_topics(kafka)
    new = {topic["topic"]: topic["partitions"] for topic in move["create"]}
    assert new == {name: moved[name] for name in moved.keys() - after.keys() - KAFKAS}
    assert told(on, "--check")["deployed"] == 2

    declare(tmp_path, "planned", partitions=3, more=MORE)
    assert "errata backfill NET more" in told(on, status=1)["refused"]
    (tmp_path / "net.py").write_text((tmp_path / "net.py").read_text().replace("1m", "2m"))
    assert "boxes 'sums' differ" in told(on, status=1)["refused"].replace("\n", " ")


def test_topics_that_were_rendered_are_found(on: Errata, broker: EmbeddedBroker, tmp_path: Path):
    declare(tmp_path, "rendered", partitions=2)
    create_topics(broker.settings, [TopicSpec("rendered-prices", 2)])
    make(broker, on("render", "topics", "net.py").out)
    found = told(on)
    assert (found["create"], found["differ"], found["deployed"]) == ([], [], None)
    assert on("deploy", "net.py").status == 0
    first = rendered(on)
    declare(tmp_path, "rendered", partitions=3)
    both = rendered(on)
    assert both > first  # what is moved has to stay until it has been
    make(broker, on("render", "topics", "net.py").out)
    assert told(on)["create"] == []
    assert on("deploy", "net.py").status == 0
    after = rendered(on)
    assert {"rendered.sums.v2", "rendered-out", "rendered.plan"} <= after < both
    assert "rendered.sums" not in after


def rendered(on: Errata) -> set[str]:
    return set(re.findall(r"topicName: (\S+)", on("render", "topics", "net.py").out))


def make(broker: EmbeddedBroker, text: str) -> None:
    """What the Topic Operator does."""
    specs = []
    for resource in text.split("---\n"):
        name = re.findall(r"topicName: (\S+)", resource)[0]
        count = re.findall(r"partitions: (\d+)", resource)[0]
        config = re.findall(
            r'^    ([a-z.]+): "?([^"\n]*)"?$', resource.partition("config:")[2], re.M
        )
        specs.append(TopicSpec(name, int(count), dict(config)))
    create_topics(broker.settings, specs)


def test_settings_that_differ_are_told_one_by_one(
    on: Errata, broker: EmbeddedBroker, tmp_path: Path, people: None
):
    declare(tmp_path, "differing")
    create_topics(broker.settings, [TopicSpec("differing-prices", 1)])
    assert on("deploy", "net.py").status == 0
    ended = on("plan", "net.py")
    assert ended.status == 0
    assert "version 1 is deployed; nothing to do" in ended.out
    alter(broker, "differing.sums", {"segment.ms": "5000"})
    [stays] = told(on, "--json", "--check")["differ"]
    assert (stays["topic"], stays["key"], stays["found"], stays["remedy"]) == (
        "differing.sums", "segment.ms", "5000", "",
    )  # fmt: skip
    alter(broker, "differing.sums", {"cleanup.policy": "delete"})
    ended = on("plan", "net.py")
    assert ended.status == 1
    assert "topic 'differing.sums' needs cleanup.policy compact,delete" in ended.err
    assert "kafka-configs --alter" in ended.out.replace("\n", "")
    assert on("deploy", "net.py").status == 1


def alter(broker: EmbeddedBroker, topic: str, settings: dict[str, str]) -> None:
    setting = AlterConfigOpType.SET
    entries = [ConfigEntry(k, v, incremental_operation=setting) for k, v in settings.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient(broker.settings)
    admin.incremental_alter_configs([resource])[resource].result(10)


def test_a_move_is_asked_for_on_a_terminal(
    on: Errata,
    broker: EmbeddedBroker,
    tmp_path: Path,
    people: None,
    monkeypatch: pytest.MonkeyPatch,
):
    declare(tmp_path, "asked")
    create_topics(broker.settings, [TopicSpec("asked-prices", 1)])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", refuse)
    first = on("deploy", "net.py")
    assert first.status == 0, first.err  # nothing is there that could be changed
    assert "topics to create" in first.out
    declare(tmp_path, "asked", partitions=2)
    assert on("deploy", "net.py").status == 1
    assert "asked.prices.v2" not in present_topics(broker.settings)
    assert on("deploy", "net.py", "--yes").status == 0
    assert "asked.prices.v2" in present_topics(broker.settings)


def refuse(*_: object, abort: bool) -> None:
    import typer

    assert abort
    raise typer.Abort
