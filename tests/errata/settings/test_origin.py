"""Settings whose values are in files."""

import logging
from pathlib import Path

import pytest

from errata.settings.origin import SecretFileError
from errata.settings.place import read_settings
from errata.topics import secrets

VARIABLE = "ERRATA_KAFKA__SASL_PASSWORD"
PASSWORD = "hunter2-of-secret-files"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


def given(folder: Path, content: bytes, **more: str) -> dict[str, str]:
    file = folder / "password"
    file.write_bytes(content)
    return {"KAFKA_BOOTSTRAP_SERVERS": "a:1", f"{VARIABLE}_FILE": str(file), **more}


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_variable_may_name_the_file_that_holds_the_value(tmp_path: Path, end: bytes) -> None:
    place = read_settings(given(tmp_path, PASSWORD.encode() + end), folder=tmp_path)
    assert place.kafka["sasl.password"] == PASSWORD


def test_any_setting_may_be_in_a_file(tmp_path: Path) -> None:
    login, folder = tmp_path / "login", tmp_path / "folder"
    login.write_text("ann:secret\n")
    folder.write_text("/states\n")
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": "a:1",
        "ERRATA_SCHEMA_REGISTRY__BASIC_AUTH_USER_INFO_FILE": str(login),
        "ERRATA_STATE__FOLDER_FILE": str(folder),
    }
    place = read_settings(environ, folder=tmp_path)
    assert place.registry == {"basic.auth.user.info": "ann:secret"}
    assert place.state == Path("/states")


def test_keys_of_librdkafka_that_name_files_themselves_are_left_alone(tmp_path: Path) -> None:
    name = "ERRATA_KAFKA__SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE"
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", name: "/key.pem"}
    place = read_settings(environ, folder=tmp_path)
    assert place.kafka["sasl.oauthbearer.assertion.private.key.file"] == "/key.pem"


def test_no_secret_is_shown_by_what_a_process_knows_of_its_place(tmp_path: Path) -> None:
    place = read_settings(given(tmp_path, PASSWORD.encode()), folder=tmp_path)
    assert PASSWORD not in f"{place} {place!r} {place.kafka}"
    assert PASSWORD not in secrets.clean(PASSWORD)


def test_no_secret_is_shown_by_the_library_that_reads_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On demand it logs all that its sources give."""
    monkeypatch.setenv("PYDANTIC_SETTINGS_DEBUG", "1")
    caplog.set_level(logging.DEBUG)
    (tmp_path / "errata.toml").write_text(f"[kafka]\nsasl.password = '{PASSWORD}'\n")
    read_settings({"KAFKA_BOOTSTRAP_SERVERS": "a:1"}, folder=tmp_path)
    read_settings(given(tmp_path, PASSWORD.encode()), folder=tmp_path)
    assert "sasl.password" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_value_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    environ = given(tmp_path, PASSWORD.encode(), **{VARIABLE: "another"})
    with pytest.raises(SecretFileError, match=f"{VARIABLE} and {VARIABLE}_FILE are both set"):
        read_settings(environ, folder=tmp_path)
    assert read_settings(environ | {VARIABLE: ""}, folder=tmp_path).kafka["sasl.password"]


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfehunter", "not UTF-8")]
)
def test_a_file_without_a_value_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    with pytest.raises(SecretFileError, match=f"{VARIABLE}_FILE names the file .*{told}") as error:
        read_settings(given(tmp_path, content), folder=tmp_path)
    assert "hunter" not in str(error.value)
    assert error.value.__cause__ is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", f"{VARIABLE}_FILE": "/nowhere/x"}
    with pytest.raises(SecretFileError, match=r"'/nowhere/x', which can't be read: No such file"):
        read_settings(environ, folder=tmp_path)
