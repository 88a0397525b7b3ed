"""Tasks and scopes: every text has one value, and every value one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.wire.task_id import ScopeId, ScopeKind, TaskId, TaskIdError

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*(-[a-z]+)?", fullmatch=True)
SCOPES = st.builds(ScopeId, st.sampled_from(ScopeKind), NAMES)
PARTS = st.sampled_from(["ingest", "sweep", "", "a", "0", "01", "7", "-1", "٣", "+2", " 3"])


@pytest.mark.parametrize(
    ("text", "kind", "name", "partition"),
    [
        ("ingest.trades.0", ScopeKind.INGEST, "trades", 0),
        ("totals.3", ScopeKind.BOXES, "totals", 3),
        ("trades-owner.1", ScopeKind.BOXES, "trades-owner", 1),
        ("sweep.trades.0", ScopeKind.SWEEPER, "trades", 0),
        ("sweep.2", ScopeKind.BOXES, "sweep", 2),
    ],
)
def test_a_task_is_written_as_it_always_was(text, kind, name, partition):
    assert TaskId.parse(text) == TaskId(ScopeId(kind, name), partition)
    assert str(TaskId(ScopeId(kind, name), partition)) == text


@given(SCOPES, st.integers(0, 10_000))
def test_a_task_comes_back_from_its_text(scope, partition):
    task = scope.task(partition)
    assert TaskId.parse(str(task)) == task
    assert hash(TaskId.parse(str(task))) == hash(task)
    assert ScopeId.parse(str(scope)) == scope


@given(st.text() | st.lists(PARTS, max_size=4).map(".".join))
def test_a_text_comes_back_from_its_task_or_is_none(text):
    task = TaskId.parse_or_none(text)
    assert task is None or str(task) == text


@given(st.text() | st.lists(PARTS, max_size=4).map(".".join))
def test_a_text_comes_back_from_its_scope(text):
    assert str(ScopeId.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "totals",
        "totals.",
        "totals.x",
        ".3",
        "totals.-1",
        "totals.01",
        "totals.٣",
        "totals." + "9" * 5000,
    ],
)
def test_a_text_that_is_no_task_is_refused(text):
    assert TaskId.parse_or_none(text) is None
    with pytest.raises(TaskIdError, match=r"is not a task id, which has the form SCOPE\.PARTITION"):
        TaskId.parse(text)


def test_a_scope_of_boxes_has_no_name_that_reads_as_another_kind():
    with pytest.raises(TaskIdError, match="not a name of a scope of boxes"):
        ScopeId.of_boxes("ingest.trades")
