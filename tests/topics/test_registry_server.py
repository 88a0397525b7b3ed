"""The registry that is a server, with a stand-in for its client."""

import json
import sys
from types import SimpleNamespace

import pytest

from errata.topics import registry_server
from errata.topics.cluster import ClusterError
from errata.topics.memory import MemoryCluster
from errata.topics.refused import RefusedError
from errata.topics.registry import (
    NotAvroError,
    RegistryAwayError,
    SchemaRegistry,
    UnknownSchemaError,
)
from errata.topics.registry_server import RegistryServer, registry
from tests.topics.test_registry import A, B


class Refused(Exception):
    def __init__(self, status: int) -> None:
        self.http_status_code, self.error_message = status, "incompatible"


class Client:
    def __init__(self, conf: dict) -> None:
        self.conf, self.kept, self.subjects = conf, {}, set()
        self.is_read_only = False

    def __exit__(self, *_):
        pass

    def lookup_schema(self, subject, schema):
        if subject not in self.subjects or self.kept[7].schema_str != schema.schema_str:
            raise Refused(404)
        return SimpleNamespace(schema_id=7)

    def register_schema(self, subject, schema):
        if subject == "bad":
            raise Refused(409)
        if self.is_read_only:
            raise Refused(403)
        if subject == "none":
            raise Refused(404)
        self.subjects.add(subject)
        self.kept[7] = schema
        return 7

    def test_compatibility_all_versions(self, subject, schema):
        return "fits" in subject

    def get_compatibility(self, subject=None):
        if subject == "refused by all":
            raise Refused(404)
        return "FULL" if subject else "BACKWARD"

    def get_latest_version(self, subject):
        if subject == "none":
            raise Refused(404)
        return SimpleNamespace(schema_id=7, schema=self.kept[7])

    def get_schema(self, schema_id):
        if schema_id in (401, 403):
            raise Refused(schema_id)
        if schema_id == 112:
            raise ConnectionError("no https://ann:hunter2@registry, nor with hunter3-of-a-test")
        if schema_id == 500:
            raise Refused(500)
        if schema_id == 111:
            raise ConnectionError("refused")
        if schema_id not in self.kept:
            raise Refused(404)
        return self.kept[schema_id]


def configured(monkeypatch, http="httpx2", **settings):
    fake = SimpleNamespace(
        SchemaRegistryClient=Client,
        SchemaRegistryError=Refused,
        Schema=lambda text, kind: SimpleNamespace(schema_str=text, schema_type=kind),
    )
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", fake)
    for name in ("httpx2", "httpx"):  # None: it is not installed
        there = SimpleNamespace(HTTPError=ConnectionError) if name == http else None
        monkeypatch.setitem(sys.modules, name, there)
    return registry(MemoryCluster(), {"url": "http://registry", **settings})


@pytest.mark.parametrize("http", ["httpx2", "httpx"])
def test_a_configured_server_is_used_instead(monkeypatch, http):
    server = configured(monkeypatch, http)
    assert server._client.conf["url"] == "http://registry"
    assert isinstance(server, RegistryServer)
    assert server.schema(server.register("a", A)) == A
    assert (server.latest("a"), server.latest("none")) == ((7, A), None)
    with pytest.raises(UnknownSchemaError, match="schema 8"):
        server.schema(8)
    with pytest.raises(ClusterError, match="subject 'bad': incompatible"):
        server.register("bad", A)
    with pytest.raises(ClusterError, match="refuses schema 500"):
        server.schema(500)
    with pytest.raises(ClusterError, match=r"did not answer a request for schema 111: .*start it"):
        server.schema(111)


def test_what_is_registered_needs_no_right_to_write(monkeypatch):
    deployer, role = configured(monkeypatch), configured(monkeypatch)
    deployer.register("a", A)
    role._client = deployer._client
    role._client.is_read_only = True
    assert [role.register("a", A) for _ in range(2)] == [7, 7]
    with pytest.raises(ClusterError, match="refuses the schema of subject 'a'"):
        role.register("a", B)


def test_a_server_that_has_no_such_path_is_told(monkeypatch):
    with pytest.raises(ClusterError, match="which may lack a path"):
        configured(monkeypatch).register("none", A)


@pytest.mark.parametrize(
    ("subject", "schema", "kind", "level"),
    [
        ("none", A, "new", ""),
        ("fits", A, "same", ""),
        ("fits", B, "compatible", ""),
        ("refused", B, "incompatible", "FULL"),
        ("refused by all", B, "incompatible", "BACKWARD"),
    ],
)
def test_a_server_judges_by_the_level_of_the_subject(monkeypatch, subject, schema, kind, level):
    server = configured(monkeypatch)
    if subject != "none":
        server.register(subject, A)
    verdict = server.judge(subject, schema)
    assert (verdict.kind, verdict.level) == (kind, level)
    assert bool(verdict.reasons) == (kind == "incompatible")


def test_a_server_gets_the_settings_of_its_client_and_nothing_shows_a_secret(monkeypatch, caplog):
    login = {"basic.auth.user.info": "ann:hunter3-of-a-test", "ssl.ca.location": "/ca.pem"}
    server = configured(monkeypatch, **login)
    assert server._client.conf.items() >= {"url": "http://registry", **login}.items()
    server.register("a", A)
    with pytest.raises(ClusterError, match="did not answer a request") as error:
        server.schema(112)
    assert "hunter" not in f"{error.value} {caplog.text} {server.outage.last_error}"
    assert error.value.__cause__ is None
    with pytest.raises(RefusedError, match=r"check schema_registry\.basic\.auth\.user\.info"):
        server.schema(401)
    with pytest.raises(RefusedError, match="give this user the right"):
        server.schema(403)


def test_a_schema_of_another_kind_than_avro_is_told(monkeypatch):
    server = configured(monkeypatch)
    server.register("a", A)
    server._client.kept[9] = SimpleNamespace(
        schema_str='syntax = "proto3";', schema_type="PROTOBUF", references=[]
    )
    with pytest.raises(NotAvroError, match="schema 9 is of kind PROTOBUF"):
        server.schema(9)


def test_a_protobuf_schema_has_the_texts_of_all_that_it_imports(monkeypatch):
    server = configured(monkeypatch)

    def of(text: str, *names: str) -> SimpleNamespace:
        refers = [SimpleNamespace(name=f"{n}.proto", subject=n, version=1) for n in names]
        return SimpleNamespace(schema_str=text, schema_type="PROTOBUF", references=refers)

    texts = {"one": of("1", "two", "gone"), "two": of("2", "one", "three"), "three": of("3")}

    def version(subject: str, number: int) -> SimpleNamespace:
        if subject not in texts:
            raise Refused(404)
        return SimpleNamespace(schema=texts[subject], version=number)

    server._client.get_version = version
    server._client.kept[9] = of("0", "one")
    with pytest.raises(NotAvroError) as found:
        server.schema(9)
    assert (found.value.text, found.value.schema_id) == ("0", 9)
    assert found.value.imports == {"one.proto": "1", "two.proto": "2", "three.proto": "3"}


@pytest.mark.parametrize("text", ["{", "[" * 100_000, None])
def test_an_avro_schema_that_is_no_json_is_refused(monkeypatch, text):
    server = configured(monkeypatch)
    server.register("a", A)
    server._client.kept[9] = SimpleNamespace(schema_str=text, schema_type=None)
    with pytest.raises(NotAvroError, match="schema 9 is of kind AVRO, with a text that is not"):
        server.schema(9)


def test_without_a_server_the_topic_is_used():
    assert isinstance(registry(MemoryCluster()), SchemaRegistry)


def test_a_server_without_its_client_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(ClusterError, match="pip install"):
        RegistryServer({"url": "http://registry"})


class Registry:
    """A server that is away at times, and a clock that goes on while one sleeps."""

    def __init__(self, monkeypatch, away: list[Exception | None]) -> None:
        self.away, self.now_s = away, 0.0
        monkeypatch.setattr(registry_server, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(registry_server, "sleep", self.sleep)
        self.server = configured(monkeypatch)
        self.server._client.kept[7] = SimpleNamespace(schema_str=json.dumps(A), schema_type=None)
        monkeypatch.setattr(self.server._client, "get_schema", self.get_schema)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def get_schema(self, schema_id):
        fault = self.away.pop(0) if self.away else None
        if fault is not None:
            raise fault
        return self.server._client.kept[7]


AWAY = ConnectionError("refused")


def told(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_server_that_is_not_there_yet_is_waited_for(monkeypatch, caplog):
    found = Registry(monkeypatch, [AWAY, Refused(503), AWAY])
    assert found.server.schema(7) == A
    assert found.now_s == 1.5
    assert told(caplog) == [
        "the schema registry does not answer: refused; waiting for it",
        "the schema registry answers again",
    ]


def test_a_server_that_does_not_come_is_given_up(monkeypatch):
    found = Registry(monkeypatch, [AWAY] * 1000)
    with pytest.raises(
        RegistryAwayError, match=r"did not answer .*: refused; start it, or correct"
    ):
        found.server.schema(7)
    assert registry_server.WAIT_S < found.now_s < registry_server.WAIT_S + 2


def test_a_server_that_goes_away_later_is_not_waited_for_and_known_schemas_are_known(
    monkeypatch, caplog
):
    found = Registry(monkeypatch, [None, AWAY, AWAY])
    assert found.server.schema(7) == A
    for _ in range(2):
        with pytest.raises(RegistryAwayError):
            found.server.schema(8)
        assert found.server.schema(7) == A
    assert found.now_s == 0
    assert (found.server.outage.last_error, found.server.outage.failure_count) == ("refused", 2)
    assert found.server.schema(8) == A
    assert (found.server.outage.last_error, found.server.outage.failure_count) == ("", 2)
    assert told(caplog) == [
        "the schema registry does not answer: refused; continuing with the known schemas",
        "the schema registry answers again",
    ]


def test_who_registers_waits_for_a_server_that_has_answered_before(monkeypatch):
    found = Registry(monkeypatch, [None, AWAY, AWAY])
    assert found.server.schema(7) == A
    latest = SimpleNamespace(schema_id=7, schema=found.server._client.kept[7])
    monkeypatch.setattr(
        found.server._client, "get_latest_version", lambda _: found.get_schema(7) and latest
    )
    assert found.server.latest("a") == (7, A)
    assert found.now_s == 1.0


def test_a_refusal_is_an_answer(monkeypatch, caplog):
    found = Registry(monkeypatch, [Refused(409), AWAY])
    with pytest.raises(ClusterError, match="refuses schema 7"):
        found.server.schema(7)
    with pytest.raises(RegistryAwayError):
        found.server.schema(7)
    assert found.now_s == 0
