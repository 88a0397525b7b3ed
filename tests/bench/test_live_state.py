"""L7: what a task holds does not grow with history, unless it is told to keep everything."""

import pytest

from bench.live_state import GROUPS, drawn, measure

MOST = 8_000


@pytest.mark.parametrize("mode", ["upstream", "downstream"])
def test_l7_live_state_is_the_open_windows_however_long_the_history(mode):
    assert all(rows <= 2 * GROUPS for _, rows in measure(mode, MOST))


def test_the_resident_yardstick_keeps_everything_and_the_picture_shows_both():
    points = measure("resident", MOST)
    assert points[-1][1] > MOST
    picture = drawn({"resident": points, "upstream": [(x, GROUPS) for x, _ in points]})
    assert picture.count("<polyline") == 2
