"""Damage to a file, as a disk that rots does it."""

import os
import random
from collections.abc import Sequence
from pathlib import Path


def flipped(path: Path, rng: random.Random, bits: Sequence[int] = (1, 3, 20)) -> None:
    """Flip one of some numbers of bits."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice(bits)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def zeroed(path: Path, rng: random.Random) -> None:
    """Overwrite 4 KiB, or up to the end, with zeros."""
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    end = min(len(content), start + 4096)
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def shortened(path: Path, rng: random.Random) -> None:
    """Cut off the end."""
    os.truncate(path, rng.randrange(path.stat().st_size))
