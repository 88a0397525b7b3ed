"""The registry framing that Kafka users know: a zero byte, the schema's id, then the Avro body.

Whole batches at a time: no statement runs once per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter, methodcaller
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAGIC = 0
HEAD_BYTES = 5
UNFRAMED = -1

_head = itemgetter(slice(0, HEAD_BYTES))
_body = itemgetter(slice(HEAD_BYTES, None))


class Unframed(NamedTuple):
    """A batch of wire values taken apart; a place in each per value.

    Args:
        schema_ids: Schema id of each value, `UNFRAMED` where it was rejected.
        bodies: What follows the head, meaningless where it was rejected.
        rejected: Index and reason of each value that is not framed.
    """

    schema_ids: npt.NDArray[np.int64]
    bodies: list[bytes]
    rejected: list[tuple[int, str]]

    @property
    def only_id(self) -> int | None:
        """The one schema id of the whole batch; None if it is empty, mixed or has rejected ones."""
        ids = self.schema_ids
        alike = len(ids) > 0 and not self.rejected and bool((ids == ids[0]).all())
        return int(ids[0]) if alike else None


def frame(bodies: Sequence[bytes], schema_id: int) -> list[bytes]:
    r"""Return the bodies as wire values of one schema.

    Args:
        bodies: Avro bodies.
        schema_id: The registry's id, 0 to 2^31 - 1.

    Example:
        >>> frame([b"x"], 258)
        [b'\x00\x00\x00\x01\x02x']
    """
    head = bytes([MAGIC]) + schema_id.to_bytes(HEAD_BYTES - 1, "big")
    return list(map(head.__add__, bodies))


def unframe(values: Sequence[bytes]) -> Unframed:
    r"""Split wire values into schema ids and bodies.

    A value that is too short or does not begin with the magic byte is rejected by its index; the
    others are not held up by it. An id with its top bit set is rejected too: ids are positive.

    Example:
        >>> batch = unframe([b"\x00\x00\x00\x01\x02x", b"{}"])
        >>> batch.schema_ids.tolist(), batch.bodies[0], batch.rejected
        ([258, -1], b'x', [(1, 'shorter than the 5 bytes of a schema id frame: 2 bytes')])
    """
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    short = lengths < HEAD_BYTES
    heads = map(_head, values)
    if short.any():
        heads = map(methodcaller("ljust", HEAD_BYTES), heads)
    table = np.frombuffer(b"".join(heads), np.uint8).reshape(len(values), HEAD_BYTES)
    ids = np.ascontiguousarray(table[:, 1:]).view(">i4").ravel().astype(np.int64)
    bad = np.flatnonzero(short | (table[:, 0] != MAGIC) | (ids < 0))
    ids[bad] = UNFRAMED
    rejected = [(i, _reason(int(lengths[i]), table[i].tobytes())) for i in bad.tolist()]
    return Unframed(ids, list(map(_body, values)), rejected)


def _reason(length: int, head: bytes) -> str:
    if length < HEAD_BYTES:
        return f"shorter than the {HEAD_BYTES} bytes of a schema id frame: {length} bytes"
    if head[0] != MAGIC:
        return f"first byte is {head[0]:#04x}, not the magic byte 0x00 of a schema id frame"
    return "the schema id is negative"
