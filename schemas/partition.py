"""Kafka's default partitioner, for all keys of a batch at once.

Partitions are always set explicitly: librdkafka's own partitioner differs from Java's for most
keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_SEED = np.uint32(0x9747B28C)
_MIX = np.uint32(0x5BD1E995)
_SHIFT = np.uint32(24)
_PAD = bytes(4)


def partitions(keys: Sequence[bytes], count: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key as Java clients choose it: murmur2, made positive, modulo.

    Args:
        keys: Unframed bytes: with a schema id in front the same key would move.
        count: Partitions of the topic, at least 1.

    Example:
        >>> partitions([b"foobar", b""], 4).tolist()
        [2, 1]
    """
    positive = murmur2(keys).view(np.int32) & np.int32(0x7FFFFFFF)
    return positive % np.int32(count)


def murmur2(keys: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """Return Kafka's 32-bit murmur2 of each key; `.view(np.int32)` is what Java prints.

    Example:
        >>> murmur2([b"abc"]).view(np.int32).tolist()
        [479470107]
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    buffer = b"".join([*keys, _PAD])
    starts = np.cumsum(lengths) - lengths
    words: npt.NDArray[np.uint32] = np.ndarray(len(buffer) - 3, "<u4", buffer, strides=(1,))
    hashed = lengths.astype(np.uint32) ^ _SEED
    whole = lengths >> 2
    rows = np.flatnonzero(whole)
    for k in range(int(whole.max(initial=0))):  # the k-th word of all keys that have one
        rows = rows[whole[rows] > k]
        word = words[starts[rows] + 4 * k].astype(np.uint32) * _MIX
        hashed[rows] = (hashed[rows] * _MIX) ^ ((word ^ (word >> _SHIFT)) * _MIX)
    left = lengths & 3
    rows = np.flatnonzero(left)
    kept = (np.uint32(1) << (8 * left[rows]).astype(np.uint32)) - np.uint32(1)
    rest = words[starts[rows] + 4 * whole[rows]].astype(np.uint32) & kept
    hashed[rows] = (hashed[rows] ^ rest) * _MIX
    hashed ^= hashed >> np.uint32(13)
    hashed *= _MIX
    return hashed ^ (hashed >> np.uint32(15))
