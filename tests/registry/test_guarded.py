"""A real registry behind TLS and a password: who has both works, others are told, and no secret."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from errata.schemas.avro import tuple_schema
from errata.schemas.fields import FieldType
from errata.topics.memory import MemoryCluster
from errata.topics.refused import RefusedError
from errata.topics.registry_server import registry
from tests.kafka.secured import certificates
from tests.registry.apicurio import Apicurio
from tests.registry.guarded import guarded

pytestmark = pytest.mark.registry

USER, PASSWORD = "ann", "secret-of-ann"
SCHEMA = tuple_schema("Guarded", {"key": FieldType.parse("string")})
Settings = dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there, which makes the certificates")
    found = tmp_path_factory.mktemp("certificates")
    certificates(found)
    return found


@pytest.fixture
def settings(apicurio: Apicurio, folder: Path) -> Iterator[Settings]:
    user_info = f"{USER}:{PASSWORD}"
    with guarded(apicurio.url, folder, user_info=user_info) as url:
        trusted = {"ssl.ca.location": str(folder / "ca.pem")}
        yield {"url": url, "basic.auth.user.info": user_info} | trusted


def test_who_has_the_password_and_trusts_the_authority_registers_and_reads(
    settings: Settings, apicurio: Apicurio
) -> None:
    number = registry(MemoryCluster(), settings).register("guarded-value", SCHEMA)
    assert registry(MemoryCluster(), settings).latest("guarded-value") == (number, SCHEMA)
    assert registry(MemoryCluster(), {"url": apicurio.url}).schema(number) == SCHEMA


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"basic.auth.user.info": f"{USER}:another-{PASSWORD}"}, "basic.auth"),
        ({"basic.auth.user.info": ""}, "basic.auth"),
        ({"ssl.ca.location": "stranger.pem"}, r"certificate.*schema_registry\.ssl\."),
    ],
    ids=["password", "nobody", "authority"],
)
def test_who_is_not_let_in_is_told_why_without_a_secret(
    settings: Settings, folder: Path, wrong: Settings, said: str
) -> None:
    wrong = {k: str(folder / v) if "location" in k else v for k, v in wrong.items()}
    given = {k: v for k, v in (settings | wrong).items() if v}
    with pytest.raises(RefusedError, match=said) as error:
        registry(MemoryCluster(), given).register("guarded-value", SCHEMA)
    assert "\n" not in str(error.value)
    assert PASSWORD not in str(error.value)


def test_a_client_may_show_a_certificate(apicurio: Apicurio, folder: Path) -> None:
    user_info = f"{USER}:{PASSWORD}"
    with guarded(apicurio.url, folder, user_info=user_info, asks_client=True) as url:
        given = {"url": url, "basic.auth.user.info": user_info}
        given |= {"ssl.ca.location": str(folder / "ca.pem")}
        with pytest.raises(RefusedError, match=r"schema_registry\.ssl\."):
            registry(MemoryCluster(), given).latest("guarded-none")
        shown = {
            "ssl.certificate.location": str(folder / "client.pem"),
            "ssl.key.location": str(folder / "client.key.pem"),
        }
        assert registry(MemoryCluster(), given | shown).latest("guarded-none") is None
