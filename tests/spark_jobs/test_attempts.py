"""Lives of a job: one that can't be sure of its first transaction is followed by the next."""

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from errata.spark_jobs import run
from errata.spark_jobs.run import Options
from errata.topics.cluster import DoubtfulCommitError


def lives(monkeypatch, doubts: int) -> list[str]:
    """Start a job whose first lives are in doubt; return what happened to its drivers."""
    told: list[str] = []

    class Doubting:
        def __init__(self, *_args, **_options) -> None:
            told.append("made")

        def start(self, **_options) -> None:
            if told.count("made") <= doubts:
                raise DoubtfulCommitError("played: the outcome is not known")
            told.append("started")

        def close(self) -> None:
            told.append("closed")

    monkeypatch.setattr(run, "Driver", Doubting)
    monkeypatch.setattr(run, "Checkpoint", lambda *_: None)
    options = Options(folder="f", once=True)
    found = run._Attempts(None, SimpleNamespace(name="s"), None, {}, options)
    try:
        found.start()
    except DoubtfulCommitError:
        told.append("given up")
    return told


def test_a_claim_in_doubt_is_made_again_by_the_next_life(monkeypatch):
    assert lives(monkeypatch, 2) == ["made", "closed"] * 2 + ["made", "started"]


def test_a_job_in_doubt_again_and_again_is_given_up(monkeypatch):
    tries = run.MOST_QUICK + 1
    assert lives(monkeypatch, 9) == ["made", "closed"] * tries + ["given up"]
