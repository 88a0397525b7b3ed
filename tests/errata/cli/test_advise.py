"""`errata advise`, and `errata explain --running`: costs by what a network has counted."""

import json

import pytest

from errata.testing import Driver
from tests.errata.cli.test_local import CORRECTED, FIGURE, LATER, lines
from tests.errata.conftest import Errata


def send(driver: Driver) -> None:
    """Send the prices of figure 1, and their correction."""
    for some in ([*FIGURE, LATER], [CORRECTED]):
        driver.send("prices", some)
        driver.close_epoch()


def test_a_running_network_is_advised_by_what_it_counts(driver: Driver, errata: Errata) -> None:
    send(driver)
    done = errata("advise", "tape.py", "--json")
    assert (done.status, done.err) == (0, "")
    advice, other = lines(done.out)
    assert (other["arc"], other["saved_bytes"]) == ("plain", 0)
    assert advice["arc"] == "counts"
    assert advice["keep_ms"] == 86_400_000
    assert advice["users"] == ["counts"]
    assert advice["before"]["tuples"] > 0 == advice["after"]["tuples"]
    assert advice["written_bytes"] == 0  # the driver writes all arcs anyway


def test_people_get_a_table(driver: Driver, errata: Errata, people: None) -> None:
    send(driver)
    done = errata("advise", "tape.py")
    assert done.status == 0
    assert "boxes that could be connection points, the best first; KiB so far" in done.out


def test_without_corrections_there_is_no_advice(driver: Driver, errata: Errata) -> None:
    driver.send("prices", FIGURE)
    driver.close_epoch()
    done = errata("advise", "tape.py")
    assert done.status == 1
    assert "has counted no corrections yet" in done.err
    assert "give --rate and --revisions" in done.err
    assert errata("explain", "tape.py", "--running").status == 0  # which needs none


def test_a_load_may_be_assumed(driver: Driver, errata: Errata, people: None) -> None:
    done = errata("advise", "tape.py", "--rate", "100", "--revisions", "2%", "--groups", "10")
    assert done.status == 0
    assert "KiB a second" in done.out
    none = errata("advise", "tape.py", "--rate", "100", "--revisions", "0")
    assert none.status == 0


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--revisions", "1%"], "--revisions and --groups need --rate"),
        (["--rate", "10", "--revisions", "many"], "needs a share of 0% to 100%, found 'many'"),
        (["--rate", "10", "--revisions", "120%"], "needs a share of 0% to 100%, found '120%'"),
        (["--rate", "0"], "0.001"),
    ],
)
def test_wrong_usage(driver: Driver, errata: Errata, arguments, needed) -> None:
    done = errata("advise", "tape.py", *arguments)
    assert done.status == 2
    assert needed in done.err.replace("\n", " ")


def test_explain_tells_costs_of_a_running_network(
    driver: Driver, errata: Errata, people: None
) -> None:
    send(driver)
    (explained,) = lines(errata("explain", "tape.py", "--running", "--json").out)
    costs = {row["box"]: row for row in explained["costs"]}
    assert costs["sums"]["results_fetched"] == 1.5
    assert costs["counts"]["tuples_replayed"] > 1
    assert json.dumps(costs)
    assert "by the tuples that were counted" in errata("explain", "tape.py", "--running").out
