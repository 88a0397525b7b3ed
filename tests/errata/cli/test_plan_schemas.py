"""`errata schemas check`, and what `errata deploy` refuses, on a cluster in memory."""

import json

import pytest

from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import deploy, read_plan, topic_specs
from errata.processors.tasks import subjects
from errata.topics.memory import MemoryCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import SchemaRegistry
from tests.errata.deploy.test_new_fields import LAG_MS, OLD, network

FILE = """
from tests.errata.deploy.test_new_fields import NEW, OLD, network

net = network({})
"""


@pytest.fixture
def cluster(monkeypatch, tmp_path) -> MemoryCluster:
    """A cluster with the topic of the network's source, on which nothing can be made."""
    made = MemoryCluster()
    made.create("in", 2)
    made.create(SCHEMAS_TOPIC, 1)
    monkeypatch.setattr(made, "close", lambda: None, raising=False)
    monkeypatch.setattr("errata.cli.deploy.connect", lambda place: made)
    monkeypatch.setattr("errata.cli.plan.KafkaCluster", lambda settings: made)
    monkeypatch.setattr(
        "errata.deploy.deployment.create_topics", lambda *_: pytest.fail("makes topics")
    )
    (tmp_path / "old.py").write_text(FILE.format("OLD"))
    (tmp_path / "new.py").write_text(FILE.format("NEW"))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "memory:1")
    return made


def deployed(cluster: MemoryCluster) -> None:
    plan = compile_network(network(OLD)).placed({"trades": 2})
    for spec in topic_specs(plan, compaction_lag_ms=LAG_MS):
        cluster.create(spec.name, spec.partitions)
    subjects.register(plan, SchemaRegistry(cluster))
    deploy(cluster, plan)


@pytest.fixture
def lines(errata, cluster, monkeypatch):
    """What `errata schemas check` prints, and its exit status."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "memory:1")

    def check(file: str) -> tuple[int, dict[str, dict]]:
        found = errata("schemas", "check", file)
        told = [json.loads(line) for line in found.out.splitlines()]
        return found.status, {line["subject"]: line for line in told}

    return check


def test_of_a_network_that_was_never_deployed_everything_is_new(lines, cluster):
    status, found = lines("old.py")
    assert status == 0
    assert {line["kind"] for line in found.values()} == {"new"}
    assert {"wider.trades-value", "wider.up-key", "out-value"} <= set(found)
    assert "wider.plan" not in cluster._logs


def test_of_what_is_deployed_everything_is_the_same_and_a_new_field_makes_what_is_new(
    lines, cluster
):
    deployed(cluster)
    assert {line["kind"] for line in lines("old.py")[1].values()} == {"same"}
    status, found = lines("new.py")
    assert status == 0
    assert found["wider.trades.v2-value"]["kind"] == "new"
    assert found["out-value"]["kind"] == "compatible"
    assert found["wider.up-value"]["kind"] == "same"


@pytest.fixture
def foreign(cluster) -> None:
    """Somebody else's schema under the subject of a sink."""
    key = {"type": "record", "name": "Key", "fields": [{"name": "key", "type": "long"}]}
    SchemaRegistry(cluster).register("out-key", key)


def test_an_incompatible_schema_is_told_and_the_exit_status_is_1(lines, foreign):
    status, found = lines("old.py")
    assert status == 1
    refused = found.pop("out-key")
    assert (refused["kind"], refused["level"]) == ("incompatible", "BACKWARD")
    assert refused["reasons"] == ["field 'key' was long, is string"]
    assert {line["kind"] for line in found.values()} == {"new"}


def test_people_see_a_table(errata, cluster, foreign, people, monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "memory:1")
    found = errata("schemas", "check", "old.py")
    assert found.status == 1
    assert "INCOMPATIBLE" in found.out
    assert "field 'key' was long, is string" in found.out


def test_a_deploy_that_the_registry_would_refuse_makes_nothing(errata, cluster, foreign):
    before = {topic: len(logs) for topic, logs in cluster._logs.items()}
    found = errata("deploy", "old.py")
    assert found.status == 1
    assert "out-key (BACKWARD): field 'key' was long, is string" in found.err
    assert {topic: len(logs) for topic, logs in cluster._logs.items()} == before
    assert SchemaRegistry(cluster).latest("wider.trades-value") is None


def test_a_new_version_that_the_registry_would_refuse_makes_nothing(errata, cluster, lines):
    deployed(cluster)
    fee = {"name": "fee", "type": ["null", "string"], "default": None}
    registry = SchemaRegistry(cluster)
    schema = registry.latest("out-value")[1]
    registry.register("out-value", schema | {"fields": [*schema["fields"], fee]})
    found = errata("deploy", "new.py")
    assert found.status == 1
    assert "out-value (BACKWARD): field 'fee'" in found.err
    assert read_plan(cluster, "wider").switching_to is None
    assert "wider.trades.v2" not in cluster._logs
