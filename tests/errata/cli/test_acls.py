"""What each role may do, as it is printed."""

import json
from pathlib import Path

import pytest

from errata import Network, hopping
from errata.deploy.rights import of_scope, roles
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.topics.refused import CREATE, DELETE, GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, Right
from tests.errata.conftest import Errata
from tests.errata.network_file import write_network


@pytest.fixture
def plan() -> CompiledPlan:
    net = Network("tape")
    trades = net.source(
        "trades",
        topic="feed",
        format="json",
        fields={"key": "string", "at": "timestamp-millis", "product": "string", "n": "long"},
        identity=["key"],
        event_time="at",
        partition_by=["key"],
        keep="1d",
    )
    sums = trades.aggregate(
        "sums", by=["product"], window=hopping("30m", every="20m"), n="sum(n)", keep="1d"
    )
    sums.sink("out", format="json")
    return compile_network(net)


def topics(rights: list[Right], operation: str) -> set[str]:
    return {r.name for r in rights if r.kind == TOPIC and r.operation == operation}


def test_every_scope_and_connection_point_has_a_role(plan: CompiledPlan) -> None:
    assert list(roles(plan)) == [
        "deployer", "ingest.trades", "scope.trades", "scope.sums", "sweep.trades", "sweep.sums",
        "reader", "operator", "undeployer",
    ]  # fmt: skip


def test_the_deployer_alone_makes_topics_and_writes_schemas_and_but_for_operators_the_plan(
    plan: CompiledPlan,
) -> None:
    for role, rights in roles(plan).items():
        assert bool(topics(rights, CREATE)) == (role == "deployer")
        assert ("_errata_schemas" in topics(rights, WRITE)) == (role == "deployer")
        whole = Right(WRITE, TOPIC, "tape.", True) in rights
        assert (whole or "tape.plan" in topics(rights, WRITE)) == (role in ("deployer", "operator"))


def test_ingest_reads_its_topic_and_its_arc_and_writes_its_arc(plan: CompiledPlan) -> None:
    rights = roles(plan)["ingest.trades"]
    told = {"tape.plan", "tape.progress", "_errata_schemas"}
    assert topics(rights, READ) == told | {"feed", "tape.trades"}
    assert topics(rights, WRITE) == {"tape.trades", "tape.progress", "tape.dead-letters"}
    ids = {(r.operation, r.name, r.is_prefix) for r in rights if r.kind == TRANSACTIONAL_ID}
    assert ids == {("Write", "tape.ingest.trades.", True)}
    groups = {(r.name, r.is_prefix) for r in rights if r.kind == GROUP}
    assert groups == {("tape.ingest.trades", False), ("tape.ingest.trades.", True)}


def test_who_writes_a_sink_may_write_it_and_who_asks_may_ask(plan: CompiledPlan) -> None:
    rights = roles(plan)["scope.sums"]
    assert {"out", "tape.sums"} <= topics(rights, WRITE)
    assert "feed" not in topics(rights, READ)


def test_a_sweeper_reads_its_arc_and_replies_to_those_who_ask(plan: CompiledPlan) -> None:
    rights = roles(plan)["sweep.trades"]
    assert {"tape.trades", "tape.trades.requests"} <= topics(rights, READ)
    asking = {
        f"tape.{name}.replay"
        for name, s in plan.topology.scopes.items()
        if plan.replayed_points_of(s)
    }
    assert topics(rights, WRITE) >= asking
    assert not [r for r in rights if r.kind == TRANSACTIONAL_ID]


def test_a_reader_writes_nothing_and_an_operator_sources_and_the_plan(plan: CompiledPlan) -> None:
    assert topics(roles(plan)["reader"], WRITE) == set()
    rights = roles(plan)["operator"]
    assert topics(rights, WRITE) == {"feed", "tape.plan"}
    sends = [right.name for right in rights if right.kind == TRANSACTIONAL_ID]
    assert [name.rpartition(".")[0] for name in sorted(sends)] == ["tape", "tape.put-back"]
    assert "tape.dead-letters" in sends


def test_the_undeployer_alone_deletes_topics_and_owners_of_arcs_delete_records(
    plan: CompiledPlan,
) -> None:
    own = {Right(DELETE, TOPIC, "tape.", True), Right(DELETE, GROUP, "tape.", True)}
    of_role = {"undeployer": own, "ingest.trades": {Right(DELETE, TOPIC, "tape.trades")}}
    of_role["scope.sums"] = {Right(DELETE, TOPIC, "tape.sums")}
    for role, rights in roles(plan).items():
        assert {r for r in rights if r.operation == DELETE} == of_role.get(role, set())
    needed = of_scope(plan, "ingest.trades")  # without Delete it starts, and records stay
    assert not any(right.operation == DELETE for right in needed)
    assert set(roles(plan)["undeployer"]) - own == {Right(READ, TOPIC, "tape.plan")}


def test_command_lines_are_printed_by_role(errata: Errata, tmp_path: Path) -> None:
    write_network(tmp_path)
    done = errata(
        "acls", "tape.py", "--role", "reader", "--role", "sweep.prices", "--principal", "reader=ann"
    )
    assert done.status == 0
    lines = done.out.splitlines()
    assert [line for line in lines if line.startswith("#")] == ["# reader", "# sweep.prices"]
    server = 'kafka-acls.sh --bootstrap-server "$KAFKA_BOOTSTRAP_SERVERS" --add --allow-principal'
    assert (
        f"{server} User:ann --operation Read --operation DescribeConfigs --topic figure.plan"
        in lines
    )
    assert any(line.startswith(f"{server} User:figure.sweep.prices ") for line in lines)


def test_rules_are_printed_as_data(errata: Errata, tmp_path: Path) -> None:
    write_network(tmp_path)
    done = errata("acls", "tape.py", "--json", "--principal-prefix", "team-")
    found = {line["role"]: line for line in map(json.loads, done.out.splitlines())}
    assert found["reader"]["principal"] == "User:team-reader"
    assert {
        "resource": {"type": "topic", "name": "figure.", "patternType": "prefix"},
        "operations": ["Read", "Create", "Write", "DescribeConfigs", "AlterConfigs"],
    } in found["deployer"]["acls"]
    resource = {"type": "transactionalId", "name": "figure.prices.", "patternType": "prefix"}
    assert {"resource": resource, "operations": ["Write"]} in found["scope.prices"]["acls"]


@pytest.mark.parametrize("wrong", [["--role", "raeder"], ["--principal", "raeder=ann"]])
def test_a_role_that_is_none_is_refused(errata: Errata, tmp_path: Path, wrong: list[str]) -> None:
    write_network(tmp_path)
    done = errata("acls", "tape.py", *wrong)
    assert done.status == 2
    assert "no role 'raeder'" in done.err
