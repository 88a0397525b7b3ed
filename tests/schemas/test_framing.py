import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.schemas.framing import UNFRAMED, frame, unframe


@given(st.lists(st.binary(max_size=9)), st.integers(0, 2**31 - 1))
def test_unframing_gives_back_what_was_framed(bodies, schema_id):
    batch = unframe(frame(bodies, schema_id))
    assert list(batch.bodies) == bodies
    assert batch.schema_ids.tolist() == [schema_id] * len(bodies)
    assert batch.rejected == []
    assert batch.only_id == (schema_id if bodies else None)


@given(st.lists(st.binary(max_size=9) | st.binary(max_size=6).map(lambda tail: b"\0" + tail)))
def test_each_value_is_split_or_rejected_as_if_it_were_alone(values):
    batch = unframe(values)
    framed = [len(value) >= 5 and value[0] == 0 and value[1] < 0x80 for value in values]
    assert [i for i, _ in batch.rejected] == [i for i, fine in enumerate(framed) if not fine]
    for value, fine, schema_id, body in zip(
        values, framed, batch.schema_ids.tolist(), batch.bodies, strict=True
    ):
        assert schema_id == (int.from_bytes(value[1:5], "big") if fine else UNFRAMED)
        assert not fine or body == value[5:]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "shorter than the 5 bytes"),
        (b"\0\0\0\1", "shorter than the 5 bytes"),
        (b'{"a": 1}', "first byte is 0x7b"),
        (b"\0\xff\0\0\0", "negative"),
    ],
)
def test_a_rejected_value_says_why(value, reason):
    ((index, said),) = unframe([b"\0\0\0\0\7", value]).rejected
    assert index == 1
    assert reason in said


def test_a_batch_of_two_schemas_or_with_a_rejected_value_has_no_only_id():
    assert unframe([*frame([b"x"], 1), *frame([b"x"], 2)]).only_id is None
    assert unframe([*frame([b"x"], 1), b""]).only_id is None
