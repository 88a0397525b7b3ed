"""What a cluster refuses is told with what is missing, and the line that would grant it."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from errata.topics.client import Connection
from errata.topics.cluster import ClusterError, MissingTopicError
from errata.topics.refused import (
    CLUSTER,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    RefusedError,
    Right,
    by_resource,
    kafka_acls,
    principal,
    refusal,
)


def test_a_missing_right_is_told_on_one_line_with_the_command_that_grants_it() -> None:
    error = refusal("broker:9092", "User:ann", Right(READ, TOPIC, "tape.plan"))
    assert str(error) == (
        "broker:9092 refuses User:ann, which lacks Read on topic 'tape.plan'; `errata acls "
        "NET` prints what each role needs, such as: kafka-acls.sh --add --allow-principal User:ann "
        "--operation Read --topic tape.plan"
    )


def test_who_may_read_need_not_be_let_describe() -> None:
    both = [Right(DESCRIBE, TOPIC, "t"), Right(READ, TOPIC, "t"), Right(DESCRIBE, TOPIC, "other")]
    assert by_resource(both) == {
        (TOPIC, "t", False): [READ],
        (TOPIC, "other", False): [DESCRIBE],
    }


@pytest.mark.parametrize(
    ("right", "options"),
    [
        (Right(WRITE, TRANSACTIONAL_ID, "t.", True),
         "--operation Write --transactional-id t. --resource-pattern-type prefixed"),
        (Right(READ, GROUP, "g"), "--operation Read --group g"),
        (Right("IdempotentWrite", CLUSTER, ""), "--operation IdempotentWrite --cluster"),
    ],
)  # fmt: skip
def test_each_kind_of_resource_has_its_option(right: Right, options: str) -> None:
    assert list(kafka_acls("User:a", [right])) == [
        f"kafka-acls.sh --add --allow-principal User:a {options}"
    ]


def test_a_principal_with_blanks_is_quoted_for_the_shell() -> None:
    (line,) = kafka_acls("User:CN=ann,O=a b", [Right(READ, TOPIC, "t")])
    assert "--allow-principal 'User:CN=ann,O=a b' " in line


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.username": "ann"}, "User:ann"),
        ({"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "ann"}, "User:ann"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "ann"}, None),
        ({"sasl.username": "ann"}, None),
        ({}, None),
    ],
)
def test_who_a_client_is_is_told_only_where_its_settings_tell(settings, who) -> None:
    assert principal(settings) == who


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    """One to a cluster that is never asked."""
    monkeypatch.setattr(Connection, "_reach", lambda self, **_: None)
    monkeypatch.setattr(Connection, "client", lambda *_: SimpleNamespace(poll=lambda _: None))
    return Connection(
        {"bootstrap.servers": "b:1", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    )


def failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_the_code_tells_what_is_refused_when_a_group_is_while_a_transaction_goes_on(
    connection: Connection,
) -> None:
    right = Right(WRITE, TRANSACTIONAL_ID, "tape.ingest.0")
    error = connection.failure("x", failed(KafkaError.GROUP_AUTHORIZATION_FAILED), right=right)
    assert isinstance(error, RefusedError)
    assert "User:ann" in str(error)
    assert "Read on consumer group 'tape.ingest.0'" in str(error)


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RefusedError, "Write on topic 't'"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, MissingTopicError, "has no topic 't'"),
    ],
)
def test_a_record_that_no_retry_delivers_ends_the_process(
    connection: Connection, code: int, kind: type[ClusterError], told: str
) -> None:
    connection.on_lost("t", KafkaError(code))
    with pytest.raises(kind, match=told):
        connection.check()


def test_a_record_that_is_lost_otherwise_is_a_matter_of_its_transaction(
    connection: Connection,
) -> None:
    connection.on_lost("t", KafkaError(KafkaError._MSG_TIMED_OUT))
    connection.check()


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError._AUTHENTICATION, "check security.protocol and the sasl"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "check sasl.username and sasl.password"),
        (KafkaError._SSL, "check security.protocol and the ssl"),
    ],
)
def test_a_login_that_is_refused_names_the_settings_to_look_at(
    connection: Connection, code: int, remedy: str
) -> None:
    connection.on_error(KafkaError(code))
    with pytest.raises(RefusedError, match=rf"b:1 refuses this client.*; {remedy}"):
        connection.check()
