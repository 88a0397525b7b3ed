"""What a cluster refuses: a login, a connection, or an operation that this client has no right to.

No retry resolves it. So it has its own error, which names the missing right and ends the process.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError

from errata.topics.cluster import ClusterError

TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = "Topic", "Group", "TransactionalId", "Cluster"
READ, WRITE, CREATE, DELETE = "Read", "Write", "Create", "Delete"
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = "Describe", "DescribeConfigs", "AlterConfigs"

LOGIN = {
    KafkaError._AUTHENTICATION: "check security.protocol and the sasl.* settings",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check sasl.username and sasl.password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "check sasl.mechanism",
    KafkaError._SSL: "check security.protocol and the ssl.* settings",
}
"""What to do about a refused login or connection, by error code."""

_KIND = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TRANSACTIONAL_ID,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: CLUSTER,
}
CODES = frozenset(LOGIN) | frozenset(_KIND)
"""Codes of errors that no retry resolves."""

_OPTIONS = {
    TOPIC: "--topic",
    GROUP: "--group",
    TRANSACTIONAL_ID: "--transactional-id",
}
_WORDS = {
    TOPIC: "topic",
    GROUP: "consumer group",
    TRANSACTIONAL_ID: "transactional id",
    CLUSTER: "the cluster",
}


class RefusedError(ClusterError):
    """The cluster, or the schema registry, refuses this client; only an operator can change it."""

    restart_helps = False


class Right(NamedTuple):
    """An operation on a resource, in the terms of Kafka's ACLs.

    Args:
        operation: For example `READ`.
        kind: For example `TOPIC`.
        name: Name of the resource.
        is_prefix: Whether the name is a prefix, which stands for all resources that begin with it.
    """

    operation: str
    kind: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        """Return it as a phrase for a sentence."""
        if self.kind == CLUSTER:
            return f"{self.operation} on {_WORDS[CLUSTER]}"
        return f"{self.operation} on {_WORDS[self.kind]} '{self.name}'"


def missing_right(code: int, right: Right) -> Right:
    """Return the right that is missing, from an error's code and the right that was needed.

    A group or a transactional id may be refused during a write to a topic; the error's code is more
    precise than the caller.

    Example:
        >>> right = Right(WRITE, TRANSACTIONAL_ID, "tape.0")
        >>> missing_right(KafkaError.GROUP_AUTHORIZATION_FAILED, right)
        Right(operation='Read', kind='Group', name='tape.0', is_prefix=False)
    """
    kind = _KIND.get(code, right.kind)
    if kind == right.kind:
        return right
    operation = {GROUP: READ, CLUSTER: "IdempotentWrite"}.get(kind, WRITE)
    return Right(operation, kind, right.name)


def refusal(servers: str, principal: str | None, right: Right) -> RefusedError:
    """Return the error for a right that a principal lacks.

    Args:
        servers: The `bootstrap.servers` of the cluster.
        principal: For example ``User:ann``; None if only the brokers know it.
        right: The missing right.
    """
    who = principal or "this client"
    line = next(kafka_acls(principal or "User:...", [right]))
    return RefusedError(
        f"{servers} refuses {who}, which lacks {right}; `errata acls NET` prints what each role "
        f"needs, such as: {line}"
    )


def principal(settings: Mapping[str, str | int]) -> str | None:
    """Return a client's principal, if its settings reveal it.

    Example:
        >>> principal({"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann"})
        'User:ann'
    """
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or ""
    name = settings.get("sasl.username")
    return f"User:{name}" if name and str(mechanism).startswith(("PLAIN", "SCRAM")) else None


def by_resource(rights: Iterable[Right]) -> dict[tuple[str, str, bool], list[str]]:
    """Return the operations on each resource: kind, name, and whether that is a prefix.

    The right to read or write a topic implies the right to describe it. The most important come
    first.
    """
    operations_by_resource: dict[tuple[str, str, bool], list[str]] = {}
    for right in dict.fromkeys(rights):
        operations_by_resource.setdefault(right[1:], []).append(right.operation)
    for operations in operations_by_resource.values():
        operations.sort(key=lambda operation: operation.endswith("Configs"))
        if DESCRIBE in operations and not {READ, WRITE}.isdisjoint(operations):
            operations.remove(DESCRIBE)
    return operations_by_resource


def kafka_acls(principal: str, rights: Iterable[Right]) -> Iterator[str]:
    """Yield the command lines of Kafka's own tool that grant rights, one for each resource.

    Example:
        >>> print(*kafka_acls("User:ann", [Right(READ, TOPIC, "a"), Right(WRITE, TOPIC, "a")]))
        kafka-acls.sh --add --allow-principal User:ann --operation Read --operation Write --topic a
    """
    for (kind, name, is_prefix), operations in by_resource(rights).items():
        words = ["kafka-acls.sh", "--add", "--allow-principal", principal]
        words += [word for operation in operations for word in ("--operation", operation)]
        words += [_OPTIONS[kind], name] if kind in _OPTIONS else ["--cluster"]
        yield shlex.join(words + ["--resource-pattern-type", "prefixed"] * is_prefix)
