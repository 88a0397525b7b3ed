"""CSV cells become the JSON that was meant, whatever they hold and wherever pieces end."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.client import input_file
from errata.client.input_file import CsvLines, read_input
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

FIELDS = {
    "k": "string",
    "at": "timestamp-millis",
    "n": "long?",
    "x": "double?",
    "b": "boolean?",
    "d": "decimal(9,2)?",
}
ARC = Arc("t", {n: FieldType.parse(t) for n, t in FIELDS.items()}, ("k",), "at", ())


def one(header: str, row: str) -> dict:
    (line,) = CsvLines(ARC, header.encode(), name="f.csv").lines(row.encode())
    return json.loads(line)


def test_cells_become_values_of_their_kind_and_empty_ones_null() -> None:
    after = one("k,at,n,x,b,d", "a,12,-3,1.5e3,TRUE,0.10")["after"]
    assert after == {"k": "a", "at": 12, "n": -3, "x": 1500.0, "b": True, "d": "0.10"}
    after = one("k,at,n,x,b,d", "a,1970-01-01,,,,")["after"]
    assert after == {"k": "a", "at": "1970-01-01", "n": None, "x": None, "b": None, "d": None}


def test_cells_that_are_not_of_their_kind_stay_texts_to_be_refused() -> None:
    after = one("k,at,n,x,b,d", "a,soon,007,0x1,perhaps,much")["after"]
    assert after == {"k": "a", "at": "soon", "n": "007", "x": "0x1", "b": "perhaps", "d": "much"}


def test_old_columns_tell_the_original_and_other_fields_are_unchanged() -> None:
    assert one("op,k,at,n,old_n", "replace,a,1,7,5") == {
        "op": "replace",
        "before": {"k": "a", "at": 1, "n": 5},
        "after": {"k": "a", "at": 1, "n": 7},
    }
    assert one("op,k,at,n,old_n", "delete,a,1,7,5") == {
        "op": "delete",
        "before": {"k": "a", "at": 1, "n": 5},
    }
    assert "before" not in one("op,k,at,n,old_n", "insert,a,1,7,5")


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1)


@given(rows=st.lists(TEXT, min_size=1, max_size=8), size=st.integers(1, 40))
def test_any_text_survives_wherever_a_piece_ends(rows: list[str], size: int) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["k", "at"], *([text, "1"] for text in rows)])
    stream = io.BufferedReader(io.BytesIO(out.getvalue().encode()))  # type: ignore[arg-type]
    before, input_file.PIECE_BYTES = input_file.PIECE_BYTES, size
    try:
        pieces = list(read_input(stream, file="f.csv", arc=ARC))
    finally:
        input_file.PIECE_BYTES = before
    found = [json.loads(line)["after"]["k"] for piece in pieces for line in piece or ()]
    assert found == rows


@given(
    keys=st.lists(st.sampled_from("abcd"), min_size=1, max_size=30),
    size=st.integers(1, 20),
    most=st.integers(0, 6),
)
def test_an_epoch_ends_just_before_an_identity_comes_again_wherever_pieces_end(
    keys: list[str], size: int, most: int
) -> None:
    text = b"k,at\n" + b"".join(f"{key},{n}\n".encode() for n, key in enumerate(keys))
    wanted, seen = [[]], set()
    for key in keys:
        if key in seen and len(wanted) <= most:
            wanted.append([])
            seen = set()
        wanted[-1].append(key)
        seen.add(key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_file, "PIECE_BYTES", size)
        patch.setattr(input_file, "MOST_CUTS", most)
        pieces = list(read_input(io.BufferedReader(io.BytesIO(text)), file="f.csv", arc=ARC))
    found = [[]]
    for piece in pieces:
        if piece is None:
            found.append([])
        else:
            found[-1] += [json.loads(line)["after"]["k"] for line in piece]
    assert found == wanted


def test_plain_objects_are_inserts_if_the_first_line_is_one() -> None:
    def read(*lines: bytes) -> list:
        stream = io.BufferedReader(io.BytesIO(b"\n".join(lines)))
        return list(read_input(stream, file="f.jsonl", arc=ARC))

    revision = b'{"op": "delete", "before": {"k": "a"}}'
    plain = b' {"k": "a", "at": 5} '
    insert = b'{"op":"insert","after":{"k": "a", "at": 5}}'
    assert read(plain, b'{"epoch": true}', plain, revision) == [
        [insert], None, [insert, revision + b""],
    ]  # fmt: skip
    assert read(revision, plain) == [[revision + b"\n", plain]]  # to be refused
    assert read(b"{", plain)[0][1] == insert
