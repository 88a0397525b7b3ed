"""A clock that a test sets, for what tasks wait for."""

import pytest

from errata.processors.tasks import task


class Clock:
    """The monotonic clock of all tasks; it stands still."""

    now_s = 0.0

    def pass_on(self) -> None:
        """Let so much time pass that a task that waits tries again."""
        self.now_s += task.RETRY_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(task, "monotonic", lambda: clock.now_s)
    return clock
