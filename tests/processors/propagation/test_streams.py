"""Streams, not cells: for A = {0, 1}, (A+1)/(A+2) is {1/2, 2/3} and nothing else (Streamulus)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from errata.processors.propagation.graph import Graph
from errata.processors.propagation.orders import ORDERS

A, B, C, D = range(4)
RATIO = Graph([[], [A], [A], [B, C]])
Value = Fraction | None
Content = dict[str, Fraction]
"""A stream's content: by identity."""


def maps(function: Callable[[Fraction], Fraction]) -> Callable[[Content], Content]:
    return lambda tuples: {key: function(x) for key, x in tuples.items()}


def ratios(above: Content, below: Content) -> Content:
    return {key: above[key] / below[key] for key in above.keys() & below.keys()}


BOXES: dict[int, Callable[..., Content]] = {
    A: lambda: {},
    B: maps(lambda x: x + 1),
    C: maps(lambda x: x + 2),
    D: ratios,
}


def told(order: str, epochs: list[Content]) -> list[list[tuple[Value, Value]]]:
    """Return what D emits in each epoch: (before, after), for what A gets."""
    contents: dict[int, Content] = {box: {} for box in BOXES}
    found = []
    for given in epochs:
        revised: list[tuple[Value, Value]] = []
        epoch = ORDERS[order](RATIO, [A])
        while (box := epoch.next()) is not None:
            was = contents[box]
            read = [contents[above] for above in RATIO.inputs[box]]
            contents[box] = was | given if box == A else BOXES[box](*read)
            epoch.done(box, emitted=contents[box] != was)
            if box == D:
                now = contents[box]
                revised += [
                    (was.get(key), now[key]) for key in sorted(now) if was.get(key) != now[key]
                ]
        found.append(revised)
    return found


ZERO, ONE, HALF, THIRDS = Fraction(0), Fraction(1), Fraction(1, 2), Fraction(2, 3)


@pytest.mark.parametrize("order", ORDERS)
def test_one_after_the_other_they_give_a_half_and_then_two_thirds(order):
    epochs = [{"first": ZERO}, {"second": ONE}]
    assert told(order, epochs) == [[(None, HALF)], [(None, THIRDS)]]


@pytest.mark.parametrize("order", ORDERS)
def test_in_one_epoch_they_give_both_and_nothing_else(order):
    epochs = [{"first": ZERO, "second": ONE}]
    assert told(order, epochs) == [[(None, HALF), (None, THIRDS)]]


@pytest.mark.parametrize("order", ORDERS)
def test_a_revision_gives_one_revision_from_a_half_to_two_thirds(order):
    epochs = [{"first": ZERO}, {"first": ONE}]
    assert told(order, epochs) == [[(None, HALF)], [(HALF, THIRDS)]]


@pytest.mark.parametrize("order", ORDERS)
def test_an_epoch_that_changes_nothing_gives_nothing(order):
    assert told(order, [{"first": ZERO}, {"first": ZERO}])[1] == []
