"""Running the command line as a user does: in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Errata = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture()
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment without settings of whoever runs the tests."""
    own = {n: v for n, v in os.environ.items() if not n.startswith(("ERRATA_", "KAFKA_", "SCHEMA"))}
    path = os.pathsep.join(filter(None, [str(ROOT), own.get("PYTHONPATH")]))
    return own | {"PYTHONPATH": path, "ERRATA_STATE": str(tmp_path / "state"), "COLUMNS": "200"}


@pytest.fixture()
def errata(tmp_path: Path, environ: dict[str, str]) -> Errata:
    """Run `errata` in the test's folder; asserts that no traceback is shown."""

    def run(*arguments: str, given: bytes = b"", **variables: str):
        done = subprocess.run(
            [sys.executable, "-m", "errata", *arguments],
            input=given,
            capture_output=True,
            cwd=tmp_path,
            env=environ | variables,
            timeout=120,
            check=False,
        )
        if "ERRATA_DEBUG" not in variables:
            assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    return run
