"""A wheel in a bare environment, and a user's own modules beside his script."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from zipfile import ZipFile

import pytest

from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec

ROOT = Path(__file__).parents[1]
SHIPPED = ("errata", "processors", "schemas", "spark_jobs", "sweepers", "topics")
FILES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")
LIMIT_S = 120.0

NETWORK = """
from errata import Network, tumbling
from schemas import FIELDS            # the user's own
from topics import TOPIC

net = Network("shares")
prices = net.source(
    "prices", topic=TOPIC, format="json", fields=FIELDS, identity=["id"], event_time="at", keep="1d"
)
prices.aggregate("minutes", by=["symbol"], window=tumbling("1m"), highest="max(price)")

if __name__ == "__main__":
    from errata.testing import Driver

    with Driver(net) as driver:
        after = {"id": "a", "at": 5_000, "symbol": "IBM", "price": 25}
        driver.send("prices", {"op": "insert", "after": after})
        driver.end()
        print(driver.table("minutes")[0]["highest"])
"""
OWN = {
    "network.py": NETWORK,
    "schemas.py": (
        "FIELDS = {'id': 'string', 'at': 'timestamp-millis', 'symbol': 'string', 'price': 'long'}\n"
    ),
    "topics.py": "TOPIC = 'shares-prices'\n",
    "processors.py": "raise SystemExit('a module of the user was taken for one of Errata')\n",
}


def run(*command: str | Path, cwd: Path, environ: dict[str, str] | None = None) -> str:
    """Run a command that must succeed; return what it prints."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd, env=environ, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def own_modules(tmp_path: Path) -> Path:
    """A folder with a network and the user's own modules, called as folders of Errata are."""
    for name, text in OWN.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what is shipped."""
    source = tmp_path_factory.mktemp("source")
    for folder in SHIPPED:
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=unwanted)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", out, source, cwd=out)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel, what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    (folder / "constraints.txt").write_text("\n".join(pins))
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    binaries = folder / "venv" / "bin"
    pip = [binaries / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--constraint", folder / "constraints.txt", wheel, cwd=folder)
    return binaries


def test_own_modules_beside_a_script_do_no_harm(own_modules: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    assert run(sys.executable, "network.py", cwd=own_modules, environ=environ) == "25\n"
    told = run(
        sys.executable, "-m", "errata", "explain", "network.py", cwd=own_modules, environ=environ
    )
    assert "minutes" in told


def test_the_wheel_has_one_import_name_and_types(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.split("/")[0] for name in names} == {
        "errata",
        wheel.name.split("-py3")[0] + ".dist-info",
    }
    assert {"errata/py.typed", "errata/topics/kafka.py", "errata/spark_jobs/log4j2.properties"} <= {
        *names
    }


def test_in_a_bare_environment_a_project_is_made_and_runs_over_a_file(
    bare: Path, tmp_path: Path
) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    run(bare / "errata", "init", "shares", cwd=tmp_path, environ=environ)
    given = ["--input", "prices=shares/prices.jsonl", "--table", "minutes"]
    table = run(
        bare / "errata", "local", "shares/network.py", *given, cwd=tmp_path, environ=environ
    )
    assert '"symbol"' in table


def test_in_a_bare_environment_own_modules_do_no_harm(bare: Path, own_modules: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(own_modules)}
    assert run(bare / "python", "network.py", cwd=own_modules, environ=environ) == "25\n"
    told = run(bare / "errata", "explain", "network.py", cwd=own_modules, environ=environ)
    assert "minutes" in told


def test_a_type_checker_sees_the_types_of_the_wheel(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text("from errata import Network\n\nnet: int = Network('x')\n")
    checker = [sys.executable, "-m", "mypy", "--strict", "--no-incremental"]
    done = subprocess.run(
        [*checker, "--python-executable", bare / "python", "typed.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 'expression has type "Network", variable has type "int"' in done.stdout, done.stdout


@pytest.mark.kafka
def test_in_a_bare_environment_a_project_runs_on_kafka(
    bare: Path, tmp_path: Path, broker: EmbeddedBroker
) -> None:
    create_topics(broker.settings, [TopicSpec("wheel-prices", 1)])
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
    }
    run(bare / "errata", "init", "wheel", cwd=tmp_path, environ=environ)
    log = tmp_path / "up.log"
    with log.open("wb") as output:
        up = subprocess.Popen(
            [bare / "errata", "up", "network.py"],
            cwd=tmp_path / "wheel",
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until = time.monotonic() + LIMIT_S
        status = ""
        while "minutes" not in status and time.monotonic() < until:
            assert up.poll() is None, log.read_text()
            time.sleep(1)
            done = subprocess.run(
                [bare / "errata", "status", "network.py", "--json"],
                cwd=tmp_path / "wheel", env=environ, capture_output=True, text=True, check=False,
            )  # fmt: skip
            status = done.stdout
        assert "ingest.prices.0" in status, log.read_text()
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0, log.read_text()
