from itertools import product

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.schemas.avro import RevisionCodec, as_revisions
from errata.schemas.decode import Decoder, UndecodableError
from errata.schemas.encode import Encoder, UnencodableError
from errata.schemas.fields import FieldType
from errata.schemas.revisions import DELETE, INSERT, schema

FIELDS = {name: FieldType.parse(kind) for name, kind in {"k": "string", "n": "long?"}.items()}
CODEC = RevisionCodec("prices", FIELDS)
TUPLE = st.tuples(st.text(max_size=3), st.none() | st.integers(-9, 9))


def frame_of(rows):
    nothing = (None, None)
    sides = [
        (op, *(nothing if op == INSERT else before), *(nothing if op == DELETE else after))
        for op, before, after in rows
    ]
    return pl.DataFrame(sides, schema=schema(FIELDS), orient="row")


@given(st.lists(st.tuples(st.integers(0, 2), TUPLE, TUPLE)))
def test_revisions_come_back_as_they_were_written(rows):
    frame = frame_of(rows)
    got = CODEC.decode(CODEC.encode(frame, task="t.0", attempt=2, epoch=2**40))
    assert got.drop("task", "attempt", "epoch").equals(frame)
    assert set(got.select("task", "attempt", "epoch").rows()) <= {("t.0", 2, 2**40)}


def test_epochs_may_differ_within_a_batch():
    frame = frame_of([(0, None, ("a", 1)), (1, ("a", 1), None)])
    with_epochs = frame.with_columns(epoch=pl.Series([7, 8]))
    values = CODEC.encode(with_epochs, task="t", attempt=1)
    assert CODEC.decode(values)["epoch"].to_list() == [7, 8]


def test_a_side_whose_fields_are_null_is_refused_when_one_is_required():
    frame = frame_of([(0, None, ("a", None)), (0, None, (None, None))])
    with pytest.raises(UnencodableError, match=r"row 1 .*'after.k'"):
        CODEC.encode(frame, task="t", attempt=1, epoch=1)


def test_an_op_that_contradicts_the_sides_is_bad_among_the_others():
    cases = list(product((0, 1, 2), (True, False), (True, False)))
    cases_frame = pl.DataFrame(cases, schema=["op", "before", "after"], orient="row")
    frame = cases_frame.with_columns(
        pl.lit(value).alias(f"{side}.{name}")
        for side in ("before", "after")
        for name, value in (("k", "a"), ("n", None))
    )
    bodies = Encoder(CODEC.schema).encode(frame, task="t", attempt=1, epoch=1)
    frame, good, bad = CODEC.decode_each([*bodies, b""])
    agree = [(0, False, True), (1, True, False), (2, True, True)]
    assert good.tolist() == [i for i, case in enumerate(cases) if case in agree]
    assert sorted(frame["op"].to_list()) == [0, 1, 2]
    assert [i for i, _ in bad] == [i for i in range(13) if i not in good]
    assert "does not match" in bad[0][1]
    with pytest.raises(UndecodableError, match="record 0 "):
        CODEC.decode(bodies)


def test_a_writer_with_more_fields_gives_revisions_too():
    wider = RevisionCodec("prices", {**FIELDS, "extra": FieldType.parse("double?")})
    frame = frame_of([(0, None, ("a", 1))])
    frame = frame.with_columns(
        pl.lit(None, dtype=pl.Float64).alias(side + ".extra") for side in ("before", "after")
    )
    bodies = wider.encode(frame, task="t", attempt=1, epoch=1)
    got = as_revisions(Decoder(wider.schema).decode_each(bodies)).frame
    assert got.select(list(schema(FIELDS))).rows() == [(0, None, None, "a", 1)]
