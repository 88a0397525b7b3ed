"""Boxes that need history of one connection point share a request, and each takes its part."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.boxes.replay import ReplayQuery
from errata.processors.boxes.sharing import Sharing
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

FIELDS = {"key": FieldType("long"), "desk": FieldType.parse("string?"), "at": FieldType("long")}
ARCS = {
    name: Arc(name, FIELDS, ("key",), "at", (), event_time_shift_ms=shift)
    for name, shift in (("a", 0), ("b", -1))
}
DESKS = (None, "x", "y")


def ranges(*rows: tuple, desk: bool = True) -> pl.DataFrame:
    types = {"desk": pl.String} if desk else {}
    return pl.DataFrame(rows, schema=types | {"from_ms": pl.Int64, "to_ms": pl.Int64}, orient="row")


def tuples(*rows: tuple) -> pl.DataFrame:
    schema = {name: kind.dtype for name, kind in FIELDS.items()}
    return pl.DataFrame(rows, schema=schema, orient="row")


def inside(held: pl.DataFrame, query: ReplayQuery) -> pl.DataFrame:
    """Return what the sweepers answer to a query, by plain Python."""
    wanted = query.ranges.rows(named=True)
    shift = ARCS[query.arc].event_time_shift_ms
    return held.filter(
        [
            any(
                each.get("desk", row["desk"]) == row["desk"]
                and each["from_ms"] <= row["at"] + shift < each["to_ms"]
                for each in wanted
            )
            for row in held.rows(named=True)
        ]
    )


@st.composite
def asked(draw) -> ReplayQuery:
    desk = draw(st.booleans())
    row = st.tuples(*[st.sampled_from(DESKS)] * desk, st.integers(0, 9), st.integers(1, 12))
    return ReplayQuery(
        draw(st.sampled_from([*ARCS])),
        draw(st.sampled_from([4, 5])),
        ranges(*draw(st.lists(row, min_size=1, max_size=4)), desk=desk),
        everywhere=draw(st.booleans()),
    )


@given(
    st.lists(asked(), min_size=1, max_size=5),
    st.lists(st.tuples(st.sampled_from(DESKS), st.integers(-1, 13)), max_size=30),
)
def test_every_query_gets_what_it_would_get_alone(queries, rows):
    held = tuples(*((key, *row) for key, row in enumerate(rows)))
    sharing = Sharing(queries, ARCS)
    answers = sharing.answers(inside(held, query) for query in sharing.sent)
    for query, answer in zip(queries, answers, strict=True):
        assert answer.equals(inside(held, query)), query
    kinds = {(q.arc, q.as_of, q.everywhere, *q.ranges.columns) for q in queries}
    assert len(sharing.sent) == len(kinds) == sum(sharing.leads)


def test_what_several_boxes_take_in_parts_is_taken_by_each():
    taken = {"one": [], "other": []}
    wanted = {"one": ranges(("x", 0, 5)), "other": ranges(("x", 3, 8), ("y", 0, 2))}
    queries = [ReplayQuery("a", 1, wanted[n], take=taken[n].append) for n in wanted]
    sharing = Sharing(queries, ARCS)
    (sent,) = sharing.sent
    assert sent.ranges.rows() == [("x", 0, 8), ("y", 0, 2)]
    for part in (tuples((1, "x", 1), (2, "x", 4)), tuples((3, "x", 7), (4, "y", 1))):
        sent.take(part)
    keys = {name: pl.concat(parts)["key"].to_list() for name, parts in taken.items()}
    assert keys == {"one": [1, 2], "other": [2, 3, 4]}
    assert sharing.leads == [True, False]


@pytest.mark.parametrize("other", [{"as_of": 2}, {"arc": "b"}, {"everywhere": True}])
def test_others_are_asked_for_alone(other):
    same = {"arc": "a", "as_of": 1, "everywhere": False}
    queries = [ReplayQuery(**each, ranges=ranges(("x", 0, 5))) for each in (same, same | other)]
    assert len(Sharing(queries, ARCS).sent) == 2
