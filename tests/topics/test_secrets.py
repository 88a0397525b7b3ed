"""No secret among settings is ever shown."""

import logging
import pickle

import pytest

from errata.topics import secrets
from errata.topics.secrets import Cleaning, Hiding, clean, is_secret, remember

PASSWORD = "hunter2-of-test-secrets"


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.jaas.config",
        "basic.auth.user.info",
        "bearer.auth.token",
        "kafka.sasl.password",
    ],
)
def test_a_setting_that_holds_a_secret_is_hidden(key: str) -> None:
    assert is_secret(key)
    assert PASSWORD not in f"{Hiding({key: PASSWORD})} {Hiding({key: PASSWORD})!r}"


@pytest.mark.parametrize(
    "key",
    ["bootstrap.servers", "sasl.username", "ssl.ca.location", "ssl.key.location",
     "sasl.oauthbearer.token.endpoint.url"],
)  # fmt: skip
def test_any_other_setting_is_shown(key: str) -> None:
    assert not is_secret(key)
    assert repr(Hiding({key: "shown"})) == repr({key: "shown"})


def test_settings_stay_hidden_when_they_are_joined_copied_and_sent_to_executors() -> None:
    hidden = Hiding({"sasl.password": PASSWORD})
    for made in (hidden | {"a": 1}, hidden.copy(), pickle.loads(pickle.dumps(hidden))):
        assert made["sasl.password"] == PASSWORD
        assert PASSWORD not in repr(made)


def test_a_password_in_a_url_is_hidden() -> None:
    assert PASSWORD not in repr(Hiding({"url": f"https://ann:{PASSWORD}@registry"}))
    assert PASSWORD not in clean(f"GET https://ann:{PASSWORD}@registry/subjects: 500")


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


@pytest.mark.usefixtures("nothing_known")
def test_what_is_remembered_is_taken_out_of_any_text() -> None:
    remember(
        {"sasl.password": PASSWORD, "basic.auth.user.info": "ann:s3cret", "sasl.username": "b"}
    )
    assert clean(f"login of ann with {PASSWORD} and s3cret") == "login of ann with *** and ***"
    assert clean("ann:s3cret") == "***"


@pytest.mark.usefixtures("nothing_known")
def test_a_secret_of_a_few_letters_does_not_spoil_every_text() -> None:
    remember({"sasl.password": "a"})
    assert clean("a text") == "a text"


@pytest.mark.usefixtures("nothing_known")
def test_a_log_has_no_secret_in_messages_nor_in_tracebacks() -> None:
    remember({"sasl.password": PASSWORD})
    record: logging.LogRecord
    try:
        raise ValueError(PASSWORD)
    except ValueError as error:
        given = (type(error), error, error.__traceback__)
        record = logging.LogRecord("a", 10, "f", 1, "it is %s", (PASSWORD,), given)
    assert Cleaning().filter(record)
    told = logging.Formatter().format(record)
    assert "it is ***" in told
    assert "ValueError: ***" in told
    assert PASSWORD not in told
