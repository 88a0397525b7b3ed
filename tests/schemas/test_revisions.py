"""A delete and an insert of one identity in one epoch are one revision, or none."""

import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.fields import FieldType

FIELDS = {"k": FieldType("long", optional=True), "v": FieldType("double", optional=True)}


def rows(*told):
    """Make revisions from (op, key, value)."""
    return pl.DataFrame(
        [
            (
                op,
                *((None, None) if op == frames.INSERT else (k, v)),
                *((None, None) if op == frames.DELETE else (k, v)),
            )
            for op, k, v in told
        ],
        schema=frames.schema(FIELDS),
        orient="row",
    )


def net(*told):
    found = frames.net(rows(*told), ["k"], ["k", "v"])
    return sorted(found.rows(), key=str)


def test_a_delete_and_an_insert_of_one_identity_are_a_replace():
    assert net((frames.INSERT, 1, 5.0), (frames.DELETE, 1, 4.0)) == [
        (frames.REPLACE, 1, 4.0, 1, 5.0)
    ]


def test_they_are_nothing_if_the_tuple_is_the_same():
    assert net((frames.DELETE, 1, float("nan")), (frames.INSERT, 1, float("nan"))) == []


def test_a_null_in_an_identity_names_one_tuple():
    assert net((frames.DELETE, None, 1.0), (frames.INSERT, None, None)) == [
        (frames.REPLACE, None, 1.0, None, None)
    ]


def test_others_stay_as_they_are():
    told = rows((frames.INSERT, 1, 1.0), (frames.DELETE, 2, 2.0))
    assert frames.net(told, ["k"], ["k", "v"]).equals(told)
    assert len(net((frames.INSERT, 1, 1.0), (frames.DELETE, 2, 2.0), (frames.INSERT, 2, 3.0))) == 2
