"""Whatever the windows: all modes tell what a recomputation does.

``ERRATA_LAWS_EXAMPLES=100`` tries so many series of epochs a case instead of a few.
"""

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from errata.processors.windows.time_windows import hopping, sliding, tumbling
from tests.processors.boxes.trial import epochs, make, run

FEW = 4
EXAMPLES = int(os.environ.get("ERRATA_LAWS_EXAMPLES", FEW))
WINDOWS = {
    "tumbling": tumbling(10),
    "hopping": hopping(12, every=8),
    "with an origin": hopping(12, every=5, origin=-3),
    "of panes": hopping(17, every=2, origin=1),
    "sliding": sliding(15),
    "sliding over one instant": sliding(1),
    "whole history": None,
}
WAYS: tuple[dict[str, Any], ...] = (
    {"mode": "upstream"},
    {"mode": "downstream"},
    {"mode": "downstream", "filtered": "desk = 'a'"},
    {"mode": "downstream", "filtered": "unix_millis(window_start) % 2 = 0"},
    {"mode": "adaptive"},
    {"mode": "adaptive", "filtered": "unix_millis(window_start) % 2 = 0"},
    {"mode": "resident"},
)
seen: Counter[str] = Counter()


@pytest.mark.parametrize("written", [False, True], ids=["", "functions of a user's"])
@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("window", WINDOWS)
def test_modes_agree_with_each_other_and_with_a_plain_reference(
    window: str, emit: str, written: bool
) -> None:
    @settings(
        max_examples=EXAMPLES // 2
        if window == "of panes"
        else EXAMPLES,  # one takes thrice as long
        derandomize=EXAMPLES == FEW,
        database=None,
        phases=list(Phase) if EXAMPLES > FEW else [Phase.generate],
    )
    @given(epochs)
    def law(steps: list[Any]) -> None:
        ways = WAYS
        by: tuple[str, ...] = ("desk",)
        if WINDOWS[window] is None:
            ways = tuple(way for way in ways if "window_start" not in way.get("filtered", ""))
        if len(steps) % 2:
            by, ways = (), tuple(way for way in ways if "filtered" not in way)
        boxes = [make(WINDOWS[window], emit=emit, by=by, written=written, **way) for way in ways]
        seen.update(run(boxes, steps))

    law()


def test_the_epochs_had_all_that_the_modes_differ_in() -> None:
    if not seen:
        pytest.skip("the epochs were not run")
    for what in ("replayed", "fetched", "fallbacks", "closed", "revised"):
        assert seen[f"downstream {what}"], what
    for what in ("chosen", "replayed", "fetched", "expected", "revised"):
        assert seen[f"adaptive {what}"], what
    assert seen["upstream replayed"]
    assert not seen["upstream fetched"] + seen["resident fetched"]
