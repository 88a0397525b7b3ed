"""What an encoder refuses; what it writes is held to fastavro in test_records."""

import polars as pl
import pytest

from errata.schemas.encode import Encoder, UnencodableError

INNER = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "long"}]}


def of(avro):
    return Encoder({"type": "record", "name": "T", "fields": [{"name": "f", "type": avro}]})


def decimal(precision):
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}


def symbols(*names):
    return {"type": "enum", "name": "E", "symbols": list(names)}


@pytest.mark.parametrize(
    ("avro", "values", "dtype", "reason"),
    [
        ("long", [1, None, None], pl.Int64, "required"),
        ("string", ["a", None], pl.String, "required"),
        ("boolean", [True, None], pl.Boolean, "required"),
        (decimal(38), [1, None], pl.Int128, "required"),
        (decimal(4), [9999, 10_000], pl.Int128, "not between"),
        (decimal(4), [-9999, -10_000], pl.Int128, "not between"),
        (decimal(4), [0, 10**37], pl.Int128, "not between"),
        (decimal(38), [10**38 - 1, 10**38], pl.Int128, "not between"),
        (decimal(38), [1 - 10**38, -(10**38)], pl.Int128, "not between"),
        ("int", [2**31 - 1, 2**31], pl.Int64, "does not fit"),
        (symbols("a", "b"), [1, 2], pl.UInt8, "not between"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            [253_402_300_799_999, 253_402_300_800_000],
            pl.Int64,
            "not between",
        ),
    ],
)
def test_a_value_that_its_field_does_not_allow_is_refused_by_row_and_field(
    avro, values, dtype, reason
):
    with pytest.raises(UnencodableError, match=reason) as caught:
        of(avro).encode(pl.DataFrame({"f": pl.Series(values, dtype=dtype)}))
    assert (caught.value.index, caught.value.field) == (1, "f")


def test_what_is_under_a_side_that_is_not_there_is_not_looked_at():
    frame = pl.DataFrame({"f": [False, True], "f.n": [None, 3]})
    assert of(["null", INNER]).encode(frame) == [b"\0", b"\2\6"]
    frame = pl.DataFrame({"f": [False, True], "f.n": [9, 3]})
    assert of(["null", INNER]).encode(frame) == [b"\0", b"\2\6"]


def test_a_null_under_a_side_that_is_there_is_refused():
    frame = pl.DataFrame({"f": [False, True], "f.n": [None, None]}, schema_overrides={"f.n": int})
    with pytest.raises(UnencodableError, match="required") as caught:
        of(["null", INNER]).encode(frame)
    assert (caught.value.index, caught.value.field) == (1, "f.n")


def test_a_record_over_the_cap_is_refused():
    frame = pl.DataFrame({"f": ["a", "b" * (1 << 20)]})
    with pytest.raises(UnencodableError, match=r"row 1 .* more than 1048576 bytes"):
        of("string").encode(frame)


def test_a_head_goes_before_each_record_and_does_not_count_for_the_cap():
    frame = pl.DataFrame({"f": [False, True, False], "f.n": [None, 3, None]})
    assert of(["null", INNER]).encode(frame, b"head") == [b"head\0", b"head\2\6", b"head\0"]
    largest = "b" * ((1 << 20) - 3)  # and 3 bytes that say how long it is
    (record,) = of("string").encode(pl.DataFrame({"f": [largest]}), b"head")
    assert len(record) == 4 + (1 << 20)


def test_texts_of_a_record_that_only_some_rows_have_stand_in_their_rows():
    inner = {"type": "record", "name": "I", "fields": [{"name": "s", "type": ["null", "string"]}]}
    frame = pl.DataFrame(
        {"f": [True, False, True, True], "f.s": ["a", "not looked at", None, "ccc"]}
    )
    wanted = [b"\2\2\2a", b"\0", b"\2\0", b"\2\2\6ccc"]
    assert of(["null", inner]).encode(frame) == wanted


def test_no_rows_give_no_records():
    assert of("string").encode(pl.DataFrame({"f": []}, schema={"f": pl.String})) == []


def test_a_slice_of_a_frame_encodes_as_a_frame_of_its_own():
    encoder = of(["null", decimal(38)])
    values = [1, 10**30, None, -128, 10**37]
    frame = pl.DataFrame({"f": pl.Series(values, dtype=pl.Int128)})
    assert encoder.encode(frame[1:4]) == encoder.encode(frame)[1:4]
    texts = pl.DataFrame({"f": ["a", "é", "", "ddd" * 9]})
    assert of("string").encode(texts[1:3]) == [b"\4\xc3\xa9", b"\0"]
