"""Filling a disk up."""

import shutil
from contextlib import suppress
from pathlib import Path


def fill(folder: Path) -> Path:
    path = folder / "stuffing"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(folder).free == 0
    return path
