"""Windows that overlap much are merged from panes: the results are those of plain loops."""

from typing import Any

import pytest

from errata.processors.boxes import aggregating
from errata.processors.windows.time_windows import hopping
from tests.processors.boxes.trial import make, run

OVERLAPPING = hopping(17, every=2, origin=1)
"""The ends of these windows divide a slide into two panes."""


def entering(times: list[int], *, desk: str) -> dict[str, Any]:
    return {f"{desk}{at}": {"at": at, "desk": desk, "amount": at % 5} for at in times}


STEPS = [
    (entering([-9, -8, -7, -6, 3, 8], desk="a") | entering([-30, 7], desk="b"), 55, False),
    # windows that are closed and windows that are open, of tuples that enter and that leave
    (entering([-8, 2, 16, 17], desk="a") | {"a-9": None, "a3": None, "b7": None}, 3, True),
    (entering([-12, 18], desk="a") | {"a16": {"at": 15, "desk": "a", "amount": None}}, 9, False),
]


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
def test_windows_of_panes_are_those_of_plain_loops_in_every_mode(emit: str) -> None:
    modes = "upstream", "downstream", "resident"
    seen = run([make(OVERLAPPING, mode=mode, emit=emit) for mode in modes], STEPS)
    assert seen["upstream replayed"]
    assert seen["downstream fetched"]


def test_a_tuple_enters_one_pane_however_many_windows_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = []
    changed = aggregating.Aggregating._change

    def change(box: Any, states: Any, tuples: Any, rows: Any, groups: Any, sign: int) -> Any:
        entered.append(len(rows))
        return changed(box, states, tuples, rows, groups, sign)

    monkeypatch.setattr(aggregating.Aggregating, "_change", change)
    box = make(hopping(1_000, every=1), mode="resident")
    steps = [(entering([*range(-20, 20)], desk="a"), 1, False)]
    run([box], steps)
    assert max(entered) == 40
