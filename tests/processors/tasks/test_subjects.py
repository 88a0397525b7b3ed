"""The schemas of a plan: all that its processes register, and what a registry says to them."""

import pytest

import errata
from errata import Network, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.plan import Plan
from errata.processors.tasks import subjects
from errata.processors.tasks.subjects import IncompatibleSchemaError, planned
from errata.testing import Driver
from errata.topics.memory import MemoryCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import SchemaRegistry

FIELDS = {"key": "string", "at": "timestamp-millis", "desk": "string", "size": "long"}


def share(size: int) -> float:
    return 100 / size


def network() -> Network:
    net = Network("n")
    trades = net.source("trades", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    real = trades.where("real", "size >= 0").map(
        "shares", share=errata.python(share, "double", "size")
    )
    for mode in ("upstream", "downstream"):
        sums = real.aggregate(
            mode, by=["desk"], window=tumbling("1m"), mode=mode, total="sum(size)", keep="1d"
        )
        sums.sink(f"out.{mode}", envelope="debezium", format="avro")
    real.sink("out.shares", envelope="upsert", format="avro")
    return net


def plan() -> Plan:
    return compile_network(network()).placed({"trades": 1})


def test_all_that_a_running_network_registers_is_planned(monkeypatch):
    told, register = set(), SchemaRegistry.register

    def noted(self, subject, schema):
        told.add(subject)
        assert planned(driver.plan)[subject] == schema
        return register(self, subject, schema)

    with Driver(network()) as driver:
        monkeypatch.setattr(SchemaRegistry, "register", noted)
        for key, size in (("a", 4), ("b", 0)):
            after = {"key": key, "at": 0, "desk": "x", "size": size}
            driver.send("trades", {"op": "insert", "after": after})
        driver.close_epoch()
        driver.send("trades", b"no JSON")
        driver.end()
        assert {letter.reason for letter in driver.dead_letters()} == {
            "function raised", "undecodable",
        }  # fmt: skip
    assert told >= {"n.dead-letters-value"}


def test_the_subjects_of_a_plan_are_those_of_its_topics_and_of_arcs_that_have_none():
    found = set(planned(plan()))
    for topic in ["n.trades", "n.upstream", "n.downstream", "out.upstream", "out.shares"]:
        assert {f"{topic}-key", f"{topic}-value"} <= found
    assert {"n.progress-value", "n.trades.requests-value"} <= found
    assert "real" not in plan().topology.topics  # what a box refuses of it is in the dead letters
    assert "n.real-value" in found


def test_an_incompatible_schema_is_told_before_anything_is_registered():
    cluster = MemoryCluster()
    subjects.check(plan(), SchemaRegistry(cluster))  # without a topic everything is new
    cluster.create(SCHEMAS_TOPIC, 1)
    registry = SchemaRegistry(cluster)
    desk = {"name": "desk", "type": "int"}
    other = {"type": "record", "name": "Key", "fields": [desk, {"name": "x", "type": "int"}]}
    registry.register("n.upstream-key", other)
    with pytest.raises(IncompatibleSchemaError) as raised:
        subjects.check(plan(), SchemaRegistry(cluster))
    assert [verdict.subject for verdict in raised.value.verdicts] == ["n.upstream-key"]
    assert "n.upstream-key (BACKWARD): field 'desk' was int, is string" in str(raised.value)
    subjects.register(plan(), registry)
    assert {v.kind for v in subjects.verdicts(plan(), registry)} == {"same"}
