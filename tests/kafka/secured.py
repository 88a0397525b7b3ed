"""A broker that lets nobody in without TLS and a password, and nobody do more than they may."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from errata.topics.broker import EmbeddedBroker
from errata.topics.refused import GROUP, TOPIC, TRANSACTIONAL_ID, Right

HOST = "127.0.0.1"
ANY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
    AclPermissionType.ANY,
)  # fmt: skip
_DAYS = "2"


@dataclass
class Secured:
    """A broker and who may use it.

    Args:
        broker: Its plain listener is for the broker itself, and for tests that set something up:
            whoever uses that may do everything.
        port: Of the listener with TLS and passwords.
        mutual: Of the one that asks for certificates of clients.
        folder: Where certificates are.
        passwords: By user.
    """

    broker: EmbeddedBroker
    port: int
    mutual: int
    folder: Path
    passwords: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.admin = AdminClient(self.broker.settings | {"log_level": 0})

    def user(self, name: str) -> str:
        """Make a user; return the password."""
        if name not in self.passwords:
            self.passwords[name] = f"secret-{secrets.token_hex(8)}"
            how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            wanted = UserScramCredentialUpsertion(name, how, self.passwords[name].encode())
            for answer in self.admin.alter_user_scram_credentials([wanted]).values():
                answer.result(20)
        return self.passwords[name]

    def settings(self, name: str) -> dict[str, str | int]:
        """Return librdkafka settings of a user."""
        return {
            "bootstrap.servers": f"{HOST}:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": self.user(name),
        }

    def environ(self, name: str) -> dict[str, str]:
        """Return the same as variables, the password in a file as containers have it."""
        found = {
            f"ERRATA_KAFKA__{key.upper().replace('.', '_')}": str(value)
            for key, value in self.settings(name).items()
        }
        file = self.folder / f"{name}.password"
        file.write_text(found.pop("ERRATA_KAFKA__SASL_PASSWORD") + "\n")
        return found | {"ERRATA_KAFKA__SASL_PASSWORD_FILE": str(file)}

    def grant(self, rules: Sequence[AclBinding]) -> None:
        """Add rules."""
        for answer in self.admin.create_acls(list(rules)).values():
            answer.result(20)
        self._await(rules, there=True)

    def _await(self, rules: Sequence[AclBinding], *, there: bool) -> None:
        """Wait until the broker goes by it that rules are there, or are not."""
        deadline = monotonic() + 20.0
        while any((rule in self._known()) != there for rule in rules):
            assert monotonic() < deadline
            sleep(0.02)

    def _known(self) -> list[AclBinding]:
        return list(self.admin.describe_acls(ANY).result(20))

    @contextmanager
    def without(self, rule: AclBinding) -> Iterator[None]:
        """Take one rule away for a while."""
        found = AclBindingFilter(
            rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host,
            rule.operation, rule.permission_type,
        )  # fmt: skip
        (answer,) = self.admin.delete_acls([found]).values()
        assert len(answer.result(20)) == 1
        self._await([rule], there=False)
        try:
            yield
        finally:
            self.grant([rule])


def rules(line: Mapping[str, Any]) -> list[AclBinding]:
    """Return the rules of a line of `errata acls --json`."""
    return [
        _binding(
            line["principal"],
            _CAMEL[acl["resource"]["type"]],
            acl["resource"]["name"],
            acl["resource"]["patternType"] == "prefix",
            operation,
        )
        for acl in line["acls"]
        for operation in acl["operations"]
    ]


def bindings(principal: str, rights: Iterable[Right]) -> list[AclBinding]:
    """Return the rules that give rights to a principal."""
    return [
        _binding(principal, right.kind, right.name, right.is_prefix, right.operation)
        for right in dict.fromkeys(rights)
    ]


_CAMEL = {"topic": TOPIC, "group": GROUP, "transactionalId": TRANSACTIONAL_ID}
_KINDS = {
    TOPIC: ResourceType.TOPIC,
    GROUP: ResourceType.GROUP,
    TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {o.name.title().replace("_", ""): o for o in AclOperation}


def _binding(principal: str, kind: str, name: str, is_prefix: bool, operation: str) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    allow = AclPermissionType.ALLOW
    return AclBinding(_KINDS[kind], name, pattern, principal, "*", _OPERATIONS[operation], allow)


def told(text: str) -> dict[str, dict[str, Any]]:
    """Return the lines of `errata acls --json` by role."""
    return {line["role"]: line for line in map(json.loads, text.splitlines())}


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Run such a broker."""
    certificates(folder)
    plain, port, mutual, controller = free_ports(4)
    listeners = f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{HOST}:{port},SSL://{HOST}:{mutual}"
    overrides: dict[str, str | int] = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    with EmbeddedBroker(port=plain, overrides=overrides) as broker:
        yield Secured(broker, port, mutual, folder)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def certificates(folder: Path) -> None:
    """Make an authority, and certificates of a broker and of a client that it has signed."""
    authority(folder, "ca")
    authority(folder, "stranger")
    for name in ("broker", "client"):
        request = ["-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
        keys = ["-keyout", f"{name}.key.pem", "-out", f"{name}.request"]
        openssl(folder, "req", *request, *keys)
        (folder / "names").write_text(f"subjectAltName=DNS:localhost,IP:{HOST}\n")
        by = ["-CA", "ca.pem", "-CAkey", "ca.key.pem", "-CAcreateserial", "-days", _DAYS]
        given = ["-in", f"{name}.request", "-out", f"{name}.pem", "-extfile", "names"]
        openssl(folder, "x509", "-req", *given, *by)
    both = (folder / "broker.key.pem").read_text() + (folder / "broker.pem").read_text()
    (folder / "broker.both.pem").write_text(both)


def authority(folder: Path, name: str) -> None:
    made = ["-keyout", f"{name}.key.pem", "-out", f"{name}.pem", "-days", _DAYS]
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", *made)


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
