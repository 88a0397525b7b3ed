"""TLS, passwords and rights: roles that have what `errata acls` prints work, and fail closed else.

Each ACL of a role that runs, and those of readers and operators that matter, is taken away in turn.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation

from errata.deploy.deployment import prepare
from errata.settings.loading import load
from errata.settings.place import Place
from errata.topics.admin import await_brokers, present_topics
from errata.topics.cluster import ClusterError
from errata.topics.groups import group_members
from errata.topics.kafka import KafkaCluster
from errata.topics.refused import RefusedError
from tests.kafka.sealed import FEED, LIMIT_S, MINUTE, NET, NETWORK, OUT, RUNNING, World
from tests.kafka.secured import HOST, Secured, secured

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there, which makes the certificates")
    with secured(tmp_path_factory.mktemp("certificates")) as kafka:
        yield World(kafka, tmp_path_factory.mktemp("world"))


def price(key: str, minute: int, dollars: int) -> dict[str, object]:
    return {"key": key, "at": minute * MINUTE, "symbol": "IBM", "price": dollars}


@pytest.fixture(scope="module")
def worked(world: World) -> World:
    """The network, after it has worked with each role under its own rights."""
    with ExitStack() as stack:
        for role in RUNNING:
            stack.enter_context(world.running(role))
        seen = stack.enter_context(world.tailing("reader", "sums", 5))
        world.feed(price("a0", 105, 30), price("a1", 115, 25), price("a2", 120, 25))
        world.feed(price("a3", 300, 1), price("a4", 300, 1))
        world.feed({"key": "a5", "at": "soon"})
        assert {next(seen) for _ in range(3)} == {30, 80, 25}
        revised = world.errata("operator", "revise", "prices", "replace", "--key", "a2",
                               "--set", "price=22")  # fmt: skip
        assert revised.status == 0, revised.err
        assert {next(seen) for _ in range(2)} == {77, 22}
        status = world.errata("reader", "status", "--json")
        assert status.status == 0, status.err
        letters = world.errata("reader", "dead-letters", "--json")
        assert (letters.status, len(letters.out.splitlines())) == (0, 1), letters.err
        again = world.errata("operator", "dead-letters resend", "--all")
        assert (again.status, again.out) == (0, "1 of 1 dead letters sent\n"), again.err
        planned = world.errata("deployer", "plan", "--check")
        assert planned.status == 0, planned.out
        ended = world.errata("operator", "end", "prices")
        assert ended.status == 0, ended.err
    return world


def test_a_network_works_with_each_role_under_its_own_rights_and_no_secret_is_said(
    worked: World,
) -> None:
    everything = "\n".join(worked.said).encode() + b"\n".join(everything_on(worked.kafka))
    for user, password in worked.kafka.passwords.items():
        assert password.encode() not in everything, user
    assert b"Traceback" not in everything


def everything_on(kafka: Secured) -> Iterator[bytes]:
    """Yield what all topics of the network hold."""
    consumer = Consumer(kafka.broker.settings | {"group.id": "scan", "enable.partition.eof": True})
    listed = consumer.list_topics(timeout=20).topics
    places = [
        TopicPartition(name, partition, 0)
        for name, topic in listed.items()
        if name.startswith((NET, "_errata"))
        for partition in topic.partitions
    ]
    consumer.assign(places)
    left = len(places)
    while left:
        for message in consumer.consume(1000, 1.0):
            if message.error() is not None:
                left -= 1
                continue
            yield (message.key() or b"") + (message.value() or b"")
    consumer.close()


def named(rule: AclBinding) -> str:
    operation = rule.operation.name.title().replace("_", "")
    return f"{operation}-{rule.restype.name}-{rule.name}"


def lacking(rule: AclBinding) -> str:
    operation = rule.operation.name.title().replace("_", "")
    words = {"TOPIC": "topic", "GROUP": "consumer group", "TRANSACTIONAL_ID": "transactional id"}
    return f"which lacks {operation} on {words[rule.restype.name]} '{rule.name}"


@pytest.mark.parametrize(
    "role",
    [pytest.param(r, marks=pytest.mark.slow if r.endswith("sums") else ()) for r in RUNNING],
)
def test_each_right_that_is_taken_away_ends_its_role_at_once_with_what_is_missing(
    worked: World, role: str
) -> None:
    missed = []
    for rule in worked.rules[role]:
        if rule.operation is AclOperation.DELETE:
            continue  # without it old records stay, and the role goes on
        if rule.operation is AclOperation.READ and rule.name == OUT:
            continue  # sinks are read back after a loss only
        with worked.kafka.without(rule):
            try:
                worked.begin(role)
                missed.append(f"{named(rule)} is not needed")
                continue
            except RefusedError as error:
                said = str(error)
        if lacking(rule) not in said or "\n" in said:
            missed.append(f"{named(rule)}: {said}")
        assert f"--allow-principal User:{NET}.{role} " in said
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize(("role", "arc"), [("ingest.prices", "prices"), ("scope.sums", "sums")])
def test_only_who_may_delete_trims_a_topic(worked: World, role: str, arc: str) -> None:
    (rule,) = (r for r in worked.rules[role] if r.operation is AclOperation.DELETE)
    place = TopicPartition(f"{NET}.{arc}", 0)
    cluster = KafkaCluster(worked.kafka.settings(f"{NET}.{role}"))
    cluster.delete_before(place, 0)
    with worked.kafka.without(rule), pytest.raises(RefusedError, match=lacking(rule)):
        cluster.delete_before(place, 0)
    cluster.close()


@pytest.mark.parametrize(
    ("role", "operation", "name", "command"),
    [
        ("reader", AclOperation.READ, f"{NET}.progress", ["status"]),
        ("reader", AclOperation.READ, f"{NET}.sums", ["tail", "sums", "--no-follow"]),
        ("operator", AclOperation.WRITE, FEED,
         ["revise", "prices", "insert", '{"key": "z", "at": 0, "symbol": "A", "price": 1}',
          "--partition", "0"]),
        ("operator", AclOperation.WRITE, f"{NET}.plan", ["end", "prices"]),
    ],
)  # fmt: skip
def test_a_tool_without_a_right_says_so_on_one_line(
    world: World, role: str, operation: AclOperation, name: str, command: list[str]
) -> None:
    (rule,) = (r for r in world.rules[role] if (r.operation, r.name) == (operation, name))
    with world.kafka.without(rule):
        done = world.errata(role, *command)
    assert done.status == 1
    assert lacking(rule) in done.err
    assert done.err.count("\n") == 1


def test_nobody_but_the_deployer_deploys(world: World) -> None:
    other = world.folder / "other.py"
    other.write_text(NETWORK.replace('Network("sealed")', 'Network("unsealed")'))
    place = Place(world.kafka.settings(f"{NET}.operator"), world.folder / "none")
    cluster = KafkaCluster(place.kafka)
    with pytest.raises(RefusedError, match=r"which lacks \w+ on topic 'unsealed\.plan'"):
        prepare(load(str(other)), place, cluster)
    cluster.close()


@pytest.mark.parametrize("role", ["reader", "operator"])
def test_a_plan_is_not_shown_to_who_can_not_see_what_is_there(world: World, role: str) -> None:
    """What it may not look at would be listed as what a deployment makes."""
    done = world.errata(role, "plan")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert f"refuses User:{NET}.{role}, which lacks Describe on topic '{NET}" in done.err


def test_the_undeployer_alone_gives_a_network_up_and_it_can_be_deployed_again(
    worked: World,
) -> None:
    for role in ("deployer", "operator"):
        refused = worked.errata(role, "reset", "--yes", NET)
        assert refused.status == 1
        assert "which lacks Delete on " in refused.err
        assert present_topics(worked.kafka.broker.settings).keys() >= {f"{NET}.plan", f"{NET}.sums"}
    done = worked.errata("undeployer", "reset", "--yes", NET)
    assert done.status == 0, done.err
    assert not [t for t in present_topics(worked.kafka.broker.settings) if t.startswith(f"{NET}.")]
    assert not group_members(worked.kafka.broker.settings, prefix=f"{NET}.")
    again = worked.errata("deployer", "deploy")
    assert again.status == 0, again.err


# -------------------------------------------------------------------- who gets in at all


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sasl.password": "wrong-password-of-a-test"}, "check .*sasl"),
        ({"sasl.username": "nobody"}, "check .*sasl"),
        ({"sasl.mechanism": "PLAIN"}, "check .*sasl"),
        ({"ssl.ca.location": "stranger.pem"}, "check security.protocol and the ssl"),
        ({"security.protocol": "PLAINTEXT"}, "check security.protocol"),
    ],
    ids=["password", "user", "mechanism", "authority", "plaintext"],
)
def test_who_is_not_let_in_is_told_once_why(world: World, wrong: dict[str, str], said: str) -> None:
    wrong = {k: str(world.kafka.folder / v) if "location" in k else v for k, v in wrong.items()}
    waits = list[str]()
    settings = world.kafka.settings(f"{NET}.reader") | wrong
    with pytest.raises(RefusedError, match=said) as error:
        await_brokers(settings, limit_s=LIMIT_S, say=waits.append)
    assert "\n" not in str(error.value)
    assert str(settings["sasl.password"]) not in str(error.value)


def test_tls_to_a_port_without_it_is_told(world: World) -> None:
    plain = {"bootstrap.servers": world.kafka.broker.bootstrap_servers}
    with pytest.raises(RefusedError, match=r"check security\.protocol"):
        KafkaCluster(world.kafka.settings(f"{NET}.reader") | plain)


def test_a_process_with_a_wrong_password_ends_with_one_line_and_does_not_show_it(
    world: World,
) -> None:
    wrong = world.folder / "wrong"
    wrong.write_text("wrong-password-of-a-process\n")
    variable = {"ERRATA_KAFKA__SASL_PASSWORD_FILE": str(wrong), "ERRATA_DEBUG": ""}
    done = world.errata("ingest.prices", "run", "--scope", "ingest.prices", **variable)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert "refuses this client" in done.err
    assert "wrong-password" not in done.err


def test_a_client_may_show_a_certificate(world: World) -> None:
    folder = world.kafka.folder
    settings = {
        "bootstrap.servers": f"{HOST}:{world.kafka.mutual}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    with pytest.raises(ClusterError):
        await_brokers(settings, limit_s=2.0, say=lambda _: None)
    shown = {
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.key.pem"),
    }
    KafkaCluster(settings | shown).close()
