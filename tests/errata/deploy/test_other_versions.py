"""Processes of another plan than the deployed one end, or don't begin, and say what to do."""

import json
from itertools import count

import pytest

from errata.deploy.deployment import prepare
from errata.processors.plan.deployed import announce
from errata.settings.loading import load
from errata.settings.place import Place
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from tests.errata.running import LIMIT_S, Running
from tests.plans import with_deployment

pytestmark = pytest.mark.kafka


def refused(running: Running, *arguments: str) -> str:
    """Run a scope of the network as it is declared now; returns what it says."""
    ended = running.errata("run", "moved.py", "--scope", "prices", *arguments)
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.count("\n") <= 2
    return ended.stderr


def test_a_process_of_another_plan_than_the_deployed_one_does_not_work(running: Running):
    running.declare(2)
    text = (running.folder / "moved.py").read_text()
    assert running.errata("deploy", "moved.py").returncode == 0
    old = running.start("run", "moved.py", "--scope", "ingest.prices")
    idle = running.start("run", "moved.py", "--scope", "down", "--shared")
    running.send(20)
    running.wait_for(lambda: attempt(running), "at work")
    running.wait_for(lambda: has_member(running, "down"), "member")

    # The network has changed while it runs: it goes on, who comes new is refused.
    declared = {
        "a function": text.replace("max(price)", "min(price)"),
        "a window": text.replace('every="20m"', 'every="10m"'),
        "a field": text.replace('"price": "long"', '"price": "int"'),
    }
    for changed in declared.values():
        (running.folder / "moved.py").write_text(changed)
        told = refused(running)
        assert "is deployed with another plan" in told
        assert "run the network as deployed, or give" in told
    (running.folder / "moved.py").write_text(text[: text.index('prices.aggregate("down"')])
    assert "no longer has 'down', which is deployed; put it back" in refused(running)
    assert (old.poll(), idle.poll()) == (None, None)

    # A new version is deployed: who runs the old one ends, and does not begin again.
    running.declare(4)
    moved = running.errata("deploy", "moved.py")
    assert moved.returncode == 0, moved.stderr
    for process in (old, idle):
        assert process.wait(LIMIT_S) == 1
    assert running.log.read_text().count("moves to version 2 of its plan; version 1 ends") == 2
    running.declare(2)
    told = refused(running)
    assert "other numbers of partitions" in told
    assert "run `errata deploy` to move its tuples" in told
    running.declare(4)
    before = attempt(running)
    new = running.start("run", "moved.py", "--scope", "ingest.prices")
    running.send(20)
    running.wait_for(lambda: attempt(running) > before, "version 2 at work")
    assert new.poll() is None


def attempt(running: Running) -> int:
    """The life that reported last of what reads the source's first partition."""
    tasks = json.loads(running.errata("status", "moved.py", "--json").stdout)["tasks"]
    return next(task["attempt"] for task in tasks if task["task"] == "ingest.prices.0")


def has_member(running: Running, scope: str) -> bool:
    told = running.errata("reset", "moved.py", "--dry-run").stdout
    return f"group '{running.name}.{scope}' has 1 members" in told


def test_tasks_that_wait_for_a_sweeper_that_has_moved_on_see_it_too(running: Running):
    running.declare(2)
    assert running.errata("deploy", "moved.py").returncode == 0
    running.start("run", "moved.py", "--scope", "ingest.prices")
    waits = running.start("run", "moved.py", "--scope", "prices")  # and no sweeper answers
    cluster = KafkaCluster(running.broker.settings)
    place = Place(running.broker.settings, running.folder)
    plan = prepare(load(str(running.folder / "moved.py")), place, cluster)
    asked = [TopicPartition(plan.deployment.requests("prices"), p) for p in range(2)]
    late = (running.send(20) or all(cluster.ends(asked).values()) for _ in count())
    running.wait_for(lambda: next(late), "both tasks have asked")
    announce(cluster, with_deployment(plan, version=2))
    assert waits.wait(LIMIT_S) == 1
    assert "moves to version 2 of its plan; version 1 ends" in running.log.read_text()
    cluster.close()
