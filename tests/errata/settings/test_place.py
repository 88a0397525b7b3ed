"""Where settings come from, and which ones win."""

import subprocess
import sys
from pathlib import Path

import pytest

from errata.cli.reference import settings_page
from errata.schemas.errors import ErrataError
from errata.settings.catalogue import SETTINGS
from errata.settings.origin import Setting, SettingsError
from errata.settings.place import DAY_MS, read_log_settings, read_settings

FILE = """
[kafka]
bootstrap.servers = "file:1"
"security.protocol" = "SASL_SSL"
enable.ssl.certificate.verification = false
[state]
folder = "here"
[topics]
compaction_lag = "2h"
[schema_registry]
url = "http://file"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "errata.toml").write_text(FILE)
    (tmp_path / "below" / "deep").mkdir(parents=True)
    return tmp_path


def test_the_nearest_file_is_read_and_its_folder_is_relative_to_it(folder: Path) -> None:
    found = read_settings({}, folder=folder / "below" / "deep")
    assert found.kafka == {
        "bootstrap.servers": "file:1",
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": "false",
    }
    assert found.state == folder / "here"
    assert found.compaction_lag_ms == 7_200_000
    assert found.registry == {"url": "http://file"}


def test_a_plain_variable_wins_over_the_file_and_ours_over_both(folder: Path) -> None:
    plain = {
        "KAFKA_BOOTSTRAP_SERVERS": "plain:1",
        "ERRATA_STATE": "there",
        "SCHEMA_REGISTRY_URL": "u",
    }
    found = read_settings(plain, folder=folder)
    assert found.kafka["bootstrap.servers"] == "plain:1"
    assert (found.state, found.registry) == (Path("there"), {"url": "u"})
    ours = {"ERRATA_KAFKA__BOOTSTRAP_SERVERS": "ours:1", "ERRATA_STATE__FOLDER": "ours"}
    found = read_settings(plain | ours, folder=folder)
    assert found.kafka["bootstrap.servers"] == "ours:1"
    assert found.state == Path("ours")


def test_variables_name_librdkafkas_keys_with_underscores_for_dots(tmp_path: Path) -> None:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", "ERRATA_KAFKA__SASL_PASSWORD": "x"}
    assert read_settings(environ, folder=tmp_path).kafka["sasl.password"] == "x"


def test_an_empty_variable_does_not_count(folder: Path) -> None:
    found = read_settings({"KAFKA_BOOTSTRAP_SERVERS": ""}, folder=folder)
    assert found.kafka["bootstrap.servers"] == "file:1"


def test_state_is_in_the_users_state_folder_by_default(tmp_path: Path) -> None:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1"}
    found = read_settings(environ | {"XDG_STATE_HOME": "/xdg"}, folder=tmp_path)
    assert found.state == Path("/xdg/errata")
    assert read_settings(environ, folder=tmp_path).state == Path.home() / ".local/state/errata"
    assert found.compaction_lag_ms == DAY_MS


def test_no_address_names_every_way_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        read_settings({}, folder=tmp_path)
    for way in ("KAFKA_BOOTSTRAP_SERVERS", "ERRATA_KAFKA__BOOTSTRAP_SERVERS", "errata.toml"):
        assert way in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[kafka", "needs to be TOML"),
        ("[state]\nfodler = 'x'", "no setting 'state.fodler'"),
        ("[stat]\nfolder = 'x'", "no setting 'stat.folder'"),
        ("kafka = 1", "'kafka' needs to be a table"),
        ("[boxes]\non_error = 'hunter2'", "boxes.on_error needs to be dead-letter or stop"),
        ("[epochs]\ninterval = '20ms'", "epochs.interval needs to be 50ms to 60s"),
        ("[kafka]\n'sasl.password' = ['hunter2']", "kafka.sasl.password needs a text or a number"),
    ],
)
def test_a_file_with_a_fault_is_refused_and_no_value_is_shown(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "errata.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"errata\.toml") as error:
        read_settings({"KAFKA_BOOTSTRAP_SERVERS": "a:1"}, folder=tmp_path)
    assert told in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("ERRATA_LOG__FORMAT", "yaml", "log.format needs to be text or json"),
        ("ERRATA_LOG__LEVEL", "loud", "log.level needs to be debug or info or warning or error"),
        ("ERRATA_HTTP__LISTEN", "9100", "http.listen needs HOST:PORT"),
        ("ERRATA_HTTP__LISTEN", "here:99999", "http.listen needs HOST:PORT"),
        ("ERRATA_HTTP__LISTEN", "here:-1", "http.listen needs HOST:PORT"),
        ("ERRATA_HTTP__LISTEN", "::1:9100", "http.listen needs HOST:PORT"),
    ],
)
def test_what_a_setting_can_not_be_is_refused_with_what_it_can(
    tmp_path: Path, variable: str, value: str, told: str
) -> None:
    with pytest.raises(ErrataError, match=told):
        read_settings({"KAFKA_BOOTSTRAP_SERVERS": "a:1", variable: value}, folder=tmp_path)


def test_an_unknown_variable_of_ours_is_refused(tmp_path: Path) -> None:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", "ERRATA_STATE__FODLER": "x"}
    with pytest.raises(SettingsError, match=r"ERRATA_STATE__FODLER: no setting 'state\.fodler'"):
        read_settings(environ, folder=tmp_path)


def test_commands_that_need_no_settings_do_without_the_library_that_reads_them(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    program = "import runpy, sys; sys.argv = ['errata', '--version']\n"
    program += "try: runpy.run_module('errata', run_name='__main__')\n"
    program += "except SystemExit: print('pydantic' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=True)
    assert done.stdout.decode().splitlines()[-1] == "False"


def test_the_page_of_settings_is_up_to_date() -> None:
    page_file = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
    assert page_file.read_text() == settings_page(), (
        "python -m errata.cli.reference settings > docs/settings.md"
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s.table}.{s.key}")
def test_every_setting_is_read_from_the_variables_that_the_page_names(
    setting: Setting, tmp_path: Path
) -> None:
    key = setting.key or "client.id"
    odd = {"on_error": "stop", "listen": "here:7", "format": "json", "level": "debug"}
    odd |= {"interval": "7s"}
    value = odd.get(key, "7h")
    variables = [setting.variable.replace("<KEY>", "CLIENT_ID"), setting.plain]
    for variable in filter(None, variables):
        environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", variable: value}
        found = read_settings(environ, folder=tmp_path)
        log = read_log_settings(environ, folder=tmp_path)
        told = {
            "kafka": found.kafka.get(key),
            "schema_registry": found.registry.get(key),
            "brokers": "7h" if found.wait_ms == 7 * 3_600_000 else None,
            "state": str(found.state),
            "boxes": found.on_error,
            "epochs": "7s" if found.interval_ms == 7_000 else None,
            "topics": "7h" if found.compaction_lag_ms == 7 * 3_600_000 else None,
            "http": "{}:{}".format(*found.listen or ()) if key == "listen" else None,
            "log": dict(zip(("format", "level"), log, strict=True)).get(key),
        }
        assert told[setting.table] == value
