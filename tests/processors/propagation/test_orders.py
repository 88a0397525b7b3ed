"""All orders give the same, glitch-free, whatever has to wait for however long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.propagation.orders import ORDERS
from tests.processors.propagation.random_graphs import Case, cases

BEGUN, DONE = "begun", "done"


def ran_through(order: str, case: Case, data: st.DataObject) -> tuple[dict[int, int], list]:
    """Run an epoch, with waits in a drawn schedule; return what was emitted, and what happened."""
    graph = case.graph
    epoch = ORDERS[order](graph, case.given)
    found: dict[int, int] = {}
    happened: list[tuple[str, int]] = []

    def done(box: int) -> None:
        assert (DONE, box) not in happened
        if value := case.emitted(box, found):
            found[box] = value
        happened.append((DONE, box))
        epoch.done(box, emitted=value != 0)

    while True:
        waiting = epoch.waiting
        if waiting and data.draw(st.booleans(), label="an answer comes first"):
            if data.draw(st.booleans(), label="which is not the last"):
                epoch.wait(data.draw(st.sampled_from(waiting)))
            done(data.draw(st.sampled_from(waiting), label="to"))
        elif (box := epoch.next()) is not None:
            happened.append((BEGUN, box))
            if data.draw(st.booleans(), label=f"{box} waits"):
                epoch.wait(box)
            else:
                done(box)
        elif waiting:
            left = case.activated(found) - {b for _, b in happened}
            assert all(not case.above(b).isdisjoint(waiting) for b in left), "could go on"
            done(data.draw(st.sampled_from(waiting), label="an answer comes to"))
        else:
            return found, happened


@pytest.mark.parametrize("order", ORDERS)
@given(case=cases(), data=st.data())
def test_every_order_emits_what_going_through_all_boxes_does(order, case, data):
    found, _ = ran_through(order, case, data)
    assert found == case.recomputed()


@pytest.mark.parametrize("order", ORDERS)
@given(case=cases(), data=st.data())
def test_a_box_runs_at_most_once_and_after_all_above_it_that_run(order, case, data):
    _, happened = ran_through(order, case, data)
    begun = [box for what, box in happened if what == BEGUN]
    assert len(set(begun)) == len(begun)
    for box in begun:
        at = happened.index((BEGUN, box))
        for above in case.above(box) & set(begun):
            assert happened.index((DONE, above)) < at


@pytest.mark.parametrize("order", ORDERS)
@given(case=cases(), data=st.data())
def test_static_runs_all_boxes_and_the_others_those_with_something_to_do(order, case, data):
    found, happened = ran_through(order, case, data)
    begun = {box for what, box in happened if what == BEGUN}
    every = set(range(len(case.inputs)))
    assert begun == (every if order == "static" else case.activated(found))


@pytest.mark.parametrize("order", ["static", "dynamic"])
@given(case=cases())
def test_without_waits_the_order_is_that_of_the_numbers(order, case):
    epoch = ORDERS[order](case.graph, case.given)
    begun = []
    while (box := epoch.next()) is not None:
        begun.append(box)
        epoch.done(box, emitted=True)
    assert begun == sorted(begun)


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_not_below_one_that_waits_goes_on(order):
    """0 and 2 begin chains that meet in 4; 5 reads nobody.

    ::

        0 - 1 \\
               4     5
        2 - 3 /
    """
    case = Case([[], [0], [], [2], [1, 3], []], {0: 1, 2: 1, 5: 1}, [1000] * 6)
    epoch = ORDERS[order](case.graph, case.given)
    assert epoch.next() == 0
    epoch.wait(0)
    begun = []
    while (box := epoch.next()) is not None:
        begun.append(box)
        epoch.done(box, emitted=True)
    assert begun == [2, 3, 5]
    assert epoch.waiting == (0,)
    epoch.done(0, emitted=True)
    for box in (1, 4):
        assert epoch.next() == box
        epoch.done(box, emitted=True)
    assert epoch.next() is None
    assert epoch.waiting == ()
