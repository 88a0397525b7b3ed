import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.schemas.partition import murmur2, partitions

JAVA = {  # what Kafka's own unit test asserts of its Java implementation
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def murmur2_of_one(key):
    """Kafka's murmur2, a byte at a time."""
    mask, mix = 0xFFFFFFFF, 0x5BD1E995
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * mix & mask
        word = (word ^ word >> 24) * mix & mask
        hashed = (hashed * mix & mask) ^ word
    if key[whole:]:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * mix & mask
    hashed = (hashed ^ hashed >> 13) * mix & mask
    return hashed ^ hashed >> 15


def test_hashes_are_those_of_the_java_client():
    assert murmur2(list(JAVA)).view(np.int32).tolist() == list(JAVA.values())


@given(st.lists(st.binary(max_size=40)))
def test_a_batch_hashes_as_its_keys_do_one_by_one(keys):
    assert murmur2(keys).tolist() == [murmur2_of_one(key) for key in keys]


@given(st.lists(st.binary(max_size=12)), st.integers(1, 10_000))
def test_a_partition_is_the_positive_hash_modulo_the_count(keys, count):
    wanted = [(murmur2_of_one(key) & 0x7FFFFFFF) % count for key in keys]
    got = partitions(keys, count)
    assert got.tolist() == wanted
    assert got.dtype == np.int32


@pytest.mark.parametrize("count", [1, 7])
def test_no_keys_give_no_partitions(count):
    assert partitions([], count).tolist() == []
