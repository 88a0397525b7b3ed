"""Revisions are parted by the hash of their fields; one that moves is a delete and an insert."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.arcs.partitioner import Spread
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

FIELDS = {
    "k": FieldType("string"),
    "at": FieldType("timestamp-millis"),
    "d": FieldType("string", optional=True),
}
ARC = Arc("a", FIELDS, ("k",), "at", ("d",))
DESKS = st.sampled_from([None, "x", "y", "z", "w"])


def moves(pairs):
    count = len(pairs)
    before = pl.DataFrame(
        {"k": [str(i) for i in range(count)], "at": [0] * count, "d": [b for b, _ in pairs]},
        schema={n: t.dtype for n, t in FIELDS.items()},
    )
    after = before.with_columns(
        pl.Series("d", [a for _, a in pairs], dtype=pl.String), at=pl.lit(1, pl.Int64)
    )
    there = pl.Series([True] * count, dtype=pl.Boolean)
    return frames.between(before, there, after, there)


@given(st.lists(st.tuples(DESKS, DESKS), max_size=20), st.integers(1, 5))
def test_folding_every_partition_gives_each_tuple_where_its_hash_says(pairs, count):
    spread = Spread(ARC, count)
    found = {p: {} for p in range(count)}
    for number, (was, _) in enumerate(pairs):
        place = spread.places(pl.DataFrame({"d": [was]}, schema={"d": pl.String}))[0]
        found[place][str(number)] = was
    for emission in spread.emissions(moves(pairs), 7):
        rows = emission.revisions.with_columns(emission.partitions.alias("p"))
        for row in rows.iter_rows(named=True):
            key = row["before.k"] or row["after.k"]
            if row["op"] != frames.INSERT:
                assert found[row["p"]].pop(key) == row["before.d"]
            if row["op"] != frames.DELETE:
                found[row["p"]][key] = row["after.d"]
    for number, (_, now) in enumerate(pairs):
        place = spread.places(pl.DataFrame({"d": [now]}, schema={"d": pl.String}))[0]
        assert [p for p in found if str(number) in found[p]] == [place]


@given(st.lists(st.sampled_from(["x", "y", "z", "w"]), min_size=1), st.integers(2, 5))
def test_equal_values_lie_together_whether_or_not_they_may_be_null(desks, count):
    tuples = pl.DataFrame({"d": desks, "k": desks})
    fields = {**FIELDS, "d": FieldType("string")}
    kinds = [Arc("a", some, ("k",), "at", ("d", "k")) for some in (FIELDS, fields)]
    one, other = (Spread(arc, count).places(tuples).to_list() for arc in kinds)
    assert one == other


def test_without_fields_everything_lies_in_one_partition():
    arc = Arc("a", FIELDS, ("k",), "at", ())
    (emission,) = Spread(arc, 4).emissions(moves([("x", "y"), (None, "z")]), 1)
    assert emission.partitions.n_unique() == 1
