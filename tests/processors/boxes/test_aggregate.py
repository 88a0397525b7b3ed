"""Aggregates: what is kept, what is asked, when results appear."""

from typing import Any

import pytest

from errata.processors.windows.time_windows import History, hopping, sliding, tumbling
from tests.processors.boxes.trial import FOREVER, Trial, make


def t(key: str, at: int, amount: int | None = 1, desk: str = "a") -> dict[str, Any]:
    return {key: {"key": key, "at": at, "amount": amount, "desk": desk}}


def shown(trial: Trial) -> list[tuple[Any, ...]]:
    """Return (start, end, n, total) of every result that is there."""
    box = trial.box
    return sorted(trial.told.select(box.start, box.end, "n", "total").rows())


def test_a_result_on_update_is_there_before_its_window_closes_and_revised_epoch_by_epoch() -> None:
    """Tumbling windows of 10.

    0              10             20
    |---------------|--------------|
        ^ 3     ^ 7
                        | wm 12
    """
    early = Trial(make(tumbling(10), mode="downstream", emit="on_update"))
    late = Trial(make(tumbling(10), mode="downstream"))
    for changes, wm, on_update, on_close, told in (
        (t("x", 3, 5), 4, [(0, 10, 1, 5)], [], 1),
        (t("y", 7, 2), 8, [(0, 10, 2, 7)], [], 1),
        ({}, 12, [(0, 10, 2, 7)], [(0, 10, 2, 7)], 0),
        (t("y", 17, 2), 13, [(0, 10, 1, 5), (10, 20, 1, 2)], [(0, 10, 1, 5)], 2),
        ({"x": None}, 14, [(10, 20, 1, 2)], [], 1),
    ):
        assert early.epoch(changes, wm).height == told
        assert shown(early) == on_update
        late.epoch(changes, wm)
        assert shown(late) == on_close


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize(
    ("window", "kept"), [(tumbling(10), 1), (hopping(12, every=6), 2), (sliding(4), 3)]
)
def test_what_is_kept_are_the_states_of_open_windows_only(
    window: Any, emit: str, kept: int
) -> None:
    """L7: a tuple each ms, and the watermark with it."""
    for mode in ("upstream", "downstream"):
        trial = Trial(make(window, mode=mode, emit=emit, by=()))
        trial.check = lambda: None  # type: ignore[method-assign]
        for at in range(25):
            trial.epoch(t(str(at), at), at + 1)
            assert trial.live.states.height <= kept
            assert trial.live.tuples is None


def test_a_whole_history_keeps_a_state_a_group_and_closes_with_the_sources() -> None:
    trial = Trial(make(None, mode="upstream"))
    for at in range(20):
        trial.epoch(t(str(at), at * 10**12, desk="ab"[at % 2]), at * 10**12)
    assert trial.live.states.height == 2
    assert trial.told.is_empty()
    trial.epoch({}, FOREVER)
    assert trial.told.select("desk", "n").sort("desk").rows() == [("a", 10), ("b", 10)]
    assert trial.box.arc.visible[:2] == ["desk", "n"]
    assert trial.box.arc.identity == ("desk",)


def test_a_whole_history_without_groups_is_named_by_its_hidden_start() -> None:
    box = make(None, mode="upstream", by=(), emit="on_update")
    assert isinstance(box.window, History)
    assert box.arc.identity == ("__window_start",)
    trial = Trial(box)
    trial.epoch(t("x", 3, 5) | t("y", 7, 2), 0)
    assert trial.told.select("n", "total").rows() == [(2, 7)]
    trial.epoch({"x": None, "y": None}, 0)
    assert trial.told.is_empty()


@pytest.mark.parametrize("window", [tumbling(10), sliding(10), None])
def test_a_resident_box_keeps_all_and_asks_nobody(window: Any) -> None:
    trial = Trial(make(window, mode="resident", by=()))
    trial.epoch(t("x", 3, 5) | t("y", 5, 9) | t("z", 5, 7), 30)
    trial.epoch({"y": None}, 40)  # the largest leaves a closed window
    assert trial.seen["inputs"] + trial.seen["results"] == 0
    assert trial.live.tuples is not None
    assert trial.live.tuples.height == 2
    assert trial.live.states.height == (2 if window == sliding(10) else 1)


def test_a_lowered_largest_of_an_open_window_is_replayed_at_once_only_if_it_is_shown() -> None:
    many = {k: v for n in range(9) for k, v in t(str(n), 5, n).items()}
    for emit, asked in (("on_close", 0), ("on_update", 1)):
        trial = Trial(make(tumbling(10), mode="downstream", emit=emit, by=()))
        trial.epoch(dict(many), 0)
        trial.epoch({str(n): None for n in range(1, 9)}, 0)  # more than a state remembers
        assert trial.seen["inputs"] == asked
        trial.epoch({}, 10)
        assert trial.seen["inputs"] == 1
