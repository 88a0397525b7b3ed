"""The stranger's own arithmetic."""

from datetime import timedelta

import pytest

from errata.demo.audit.expected import recompute, windows
from tests.errata.demo.hand_made import MINUTE, NOON, Decimal, trade

#  11:40          12:00     12:10          12:20     12:30
#    |--------------|---------)              |         |
#                   |------------------------|---------)


@pytest.mark.parametrize(
    ("minutes", "starts"),
    [(0, [0, -20]), (9, [0, -20]), (10, [0]), (19, [0]), (20, [20, 0]), (-1, [-20])],
)
def test_windows_are_half_open(minutes, starts):
    found = list(windows(NOON + minutes * MINUTE))
    assert found == [NOON + start * MINUTE for start in starts]


def test_an_average_is_rounded_half_up_once():
    least = trade("a", NOON, "0.01", "0.000000001")  # 1E-11: a 32nd of it ends in a half
    none = [trade(str(i), NOON, "0") for i in range(31)]
    result = recompute([least, *none])["CDS", "USD", NOON]
    assert result["average"] == Decimal("0.000000000000313")
    assert (result["traded"], result["trades"]) == (Decimal("1E-11"), 32)


def test_a_missing_factor_counts_as_one_and_the_largest_is_after_the_factor():
    trades = [trade("a", NOON, "100", "0.5"), trade("b", NOON, "60")]
    result = recompute(trades)["CDS", "USD", NOON - timedelta(minutes=20)]
    assert (result["traded"], result["largest"]) == (Decimal(110), Decimal(60))
