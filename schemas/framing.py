"""The standard framing of schema registries: a zero byte, the schema's id, then the Avro body.

Works on whole batches: no statement runs once per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from errata.schemas.batch import Joined, words

MAGIC = 0
HEAD_BYTES = 5
UNFRAMED = -1

_LARGEST_ID = 2**31 - 1


class Unframed(NamedTuple):
    """The parts of a batch of wire values; each column has an entry for each value.

    Args:
        schema_ids: Schema id of each value, `UNFRAMED` where it was rejected.
        bodies: What follows the head, meaningless where it was rejected.
        rejected: Index and reason of each value that is not framed.
    """

    schema_ids: npt.NDArray[np.int64]
    bodies: Joined
    rejected: list[tuple[int, str]]

    @property
    def only_id(self) -> int | None:
        """The schema id of the whole batch; None if it is empty, mixed or has rejected values."""
        ids = self.schema_ids
        alike = len(ids) > 0 and not self.rejected and bool((ids == ids[0]).all())
        return int(ids[0]) if alike else None


def head(schema_id: int) -> bytes:
    """Return the header that precedes the bodies of a schema, from the schema's registry id."""
    return bytes([MAGIC]) + schema_id.to_bytes(HEAD_BYTES - 1, "big")


def frame(bodies: Sequence[bytes], schema_id: int) -> list[bytes]:
    r"""Return the bodies as wire values of one schema.

    Args:
        bodies: Avro bodies.
        schema_id: The registry's id, 0 to 2^31 - 1.

    Example:
        >>> frame([b"x"], 258)
        [b'\x00\x00\x00\x01\x02x']
    """
    return list(map(head(schema_id).__add__, bodies))


def unframe(values: Sequence[bytes]) -> Unframed:
    r"""Split wire values into schema ids and bodies.

    A value that is too short or does not begin with the magic byte is rejected by its index; the
    others are still split. An id with its top bit set is rejected too: ids are positive.

    Example:
        >>> batch = unframe([b"\x00\x00\x00\x01\x02x", b"{}"])
        >>> batch.schema_ids.tolist(), batch.bodies[0], batch.rejected
        ([258, -1], b'x', [(1, 'shorter than the 5 bytes of a schema id frame: 2 bytes')])
    """
    joined = Joined.of(values)
    lengths = joined.ends - joined.starts
    heads = (words(joined.buffer, ">u8")[joined.starts] >> np.uint64(24)).astype(np.int64)
    short, ids = lengths < HEAD_BYTES, heads & 0xFFFFFFFF
    bad = np.flatnonzero(short | (heads >> 32 != MAGIC) | (ids > _LARGEST_ID))
    ids[bad] = UNFRAMED
    return Unframed(ids, joined.after(HEAD_BYTES), [(i, _reason(values[i])) for i in bad.tolist()])


def _reason(value: bytes) -> str:
    if len(value) < HEAD_BYTES:
        return f"shorter than the {HEAD_BYTES} bytes of a schema id frame: {len(value)} bytes"
    if value[0] != MAGIC:
        return f"first byte is {value[0]:#04x}, not the magic byte 0x00 of a schema id frame"
    return "the schema id is negative"
