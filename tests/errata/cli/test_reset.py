"""`errata reset` gives a network up, and nothing else; it then starts as if it were new."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from errata.deploy.reset import SEEN_MS
from errata.settings.place import read_settings
from errata.topics.admin import create_topics, delete_topics, present_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec
from tests.errata.cli.test_plan import declare
from tests.errata.conftest import Errata
from tests.errata.running import Running

pytestmark = pytest.mark.kafka

KAFKAS = {"__consumer_offsets", "__transaction_state", "_errata_schemas"}


@pytest.fixture
def on(broker: EmbeddedBroker, errata: Errata, monkeypatch: pytest.MonkeyPatch) -> Errata:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    return errata


def topics(broker: EmbeddedBroker) -> set[str]:
    return present_topics(broker.settings).keys() - KAFKAS


def test_its_own_topics_go_and_no_others(
    on: Errata, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    declare(tmp_path, "gone", partitions=2)
    users = {"gone.sums.v7", "gone.raw", "gone.prices.backup", "gone.sumsofmine", "gone.plans"}
    create_topics(broker.settings, [TopicSpec(name, 1) for name in {"gone-prices", *users}])
    others = topics(broker)
    assert on("deploy", "net.py").status == 0
    text = (tmp_path / "net.py").read_text()  # a source that is named as if it were our own
    (tmp_path / "net.py").write_text(text.replace("gone-prices", "gone.sums.v7"))
    state = read_settings().state
    (state / "gone" / "1").mkdir(parents=True)
    (state / "other").mkdir()
    there = topics(broker)
    shown = on("reset", "net.py", "--dry-run")
    told = json.loads(shown.out)
    assert set(told["topics"]) == there - others - {"gone-out"}
    assert told["folder"] == str(state / "gone")
    assert told["running"] == []
    for refused in ([], ["--yes", "other"]):
        ended = on("reset", "net.py", *refused)
        assert (ended.status, topics(broker)) == (1, there)
        assert "nothing is deleted" in ended.err

    # Cut off after some topics: run it again.
    real = delete_topics

    def cut(settings: dict, names: list[str]) -> None:
        real(settings, names[:2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("errata.deploy.reset.delete_topics", cut)
        assert on("reset", "net.py", "--yes", "gone").status == 130
    assert "gone.plan" in topics(broker)
    ended = on("reset", "net.py", "--yes", "gone")
    assert ended.status == 0, ended.err
    assert topics(broker) == others | {"gone-out"}
    assert [folder.name for folder in state.iterdir()] == ["other"]
    again = on("reset", "net.py")
    assert (again.status, json.loads(again.out)["topics"]) == (0, [])
    assert on("reset", "net.py", "--sinks", "--yes", "gone").status == 0
    assert topics(broker) == others


def test_people_type_the_name(
    on: Errata,
    broker: EmbeddedBroker,
    tmp_path: Path,
    people: None,
    monkeypatch: pytest.MonkeyPatch,
):
    declare(tmp_path, "typed")
    create_topics(broker.settings, [TopicSpec("typed-prices", 1)])
    assert on("deploy", "net.py").status == 0
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda text, default: "y")
    ended = on("reset", "net.py")
    assert (ended.status, "typed.plan" in topics(broker)) == (1, True)
    assert "results and dead letters in these topics are lost" in " ".join(ended.out.split())
    monkeypatch.setattr("typer.prompt", lambda text, default: "typed")
    assert on("reset", "net.py").status == 0
    assert "typed.plan" not in topics(broker)


def test_a_network_that_was_given_up_makes_the_same_again(running: Running):
    running.declare(2)
    up = running.start()
    running.send(200)
    running.wait_for(lambda: "started tasks" in running.log.read_text(), "up")
    running.wait_for(running.at_work, "taken in")
    time.sleep(SEEN_MS / 1000)  # idle tasks do not report
    refused = running.errata("reset", "moved.py", "--yes", running.name)
    assert refused.returncode == 1
    assert f"processes of network {running.name!r} run (a process holds an index" in refused.stderr
    os.kill(up.pid, signal.SIGTERM)
    assert up.wait(15) == 0
    given_up = running.errata("reset", "moved.py", "--yes", running.name, "--force")
    assert given_up.returncode == 0, given_up.stderr
    assert not any(name.startswith(f"{running.name}.") for name in topics(running.broker))
    assert not (running.folder / "state" / running.name).exists()
    up = running.start()
    running.wait_for(lambda: f"{running.name}.plan" in topics(running.broker), "deployed")
    running.wait_for(running.at_work, "taken in again")
    assert running.errata("end", "moved.py", "prices").returncode == 0
    for arc in ("up", "down"):
        running.wait_for(lambda arc=arc: running.found(arc) == running.wanted(), arc)
    assert running.wanted()


def test_a_group_with_members_is_a_sign_of_life(running: Running):
    running.declare(2)
    assert running.errata("deploy", "moved.py").returncode == 0
    running.start("run", "moved.py", "--scope", "down", "--shared")
    running.wait_for(
        lambda: (
            f"group '{running.name}.down' has 1 members"
            in running.errata("reset", "moved.py", "--dry-run").stdout
        ),
        "member",
    )
