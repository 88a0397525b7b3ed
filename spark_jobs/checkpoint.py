"""The folder of a job's checkpoint: what the states belong to, and Spark's own folder inside it.

States belong to one plan and one division into shares. If they are lost, or too old to continue
from, they are rebuilt in a folder with the next number; the old folder is left for an operator to
delete.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from errata.schemas.errors import ErrataError

_FILE = "errata.json"


class CheckpointError(ErrataError):
    """A checkpoint belongs to another job."""


@dataclass(frozen=True)
class Division:
    """The properties that must not change while states are kept.

    Args:
        plan: Fingerprint of the plan.
        box: The aggregate.
        buckets: How many parts groups are hashed into.
        writers: The shuffle's partitions.
    """

    plan: str
    box: str
    buckets: int
    writers: int


class Checkpoint:
    """A folder on any file system that Spark supports.

    Args:
        session: The Spark session.
        folder: Path or URL.
    """

    def __init__(self, session: Any, folder: str) -> None:
        jvm = session._jvm
        is_url = ":" in folder
        self.folder = folder.rstrip("/") if is_url else str(Path(folder).absolute())  # not Java's
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        self._files = self._path(self.folder).getFileSystem(session._jsc.hadoopConfiguration())

    def of(self, asked: Division) -> tuple[Division, int]:
        """Return the stored division and its number, or those of a new checkpoint.

        Args:
            asked: For a new one; its numbers don't matter for one that is there.

        Raises:
            CheckpointError: If what is there is of another plan.
        """
        found = self._read()
        if found is None:
            return asked, 0
        number = found.pop("number")
        there = Division(**found)
        if (there.plan, there.box) != (asked.plan, asked.box):
            raise CheckpointError(
                f"checkpoint {self.folder!r} is of box {there.box!r} of plan {there.plan}, but "
                f"this is {asked.box!r} of plan {asked.plan}; give --checkpoint another folder, or "
                "remove this one: states are made anew from the connection point"
            )
        return there, number

    def write(self, division: Division, number: int) -> None:
        """Record the division to which the states of a number belong."""
        text = json.dumps(asdict(division) | {"number": number}, indent=1)
        stream = self._files.create(self._path(f"{self.folder}/{_FILE}"), True)
        stream.write(text.encode())
        stream.close()

    def numbered(self, number: int) -> str:
        """Return Spark's folder for a number."""
        return f"{self.folder}/{number}"

    def has_states(self, number: int) -> bool:
        """Whether a batch of a number has been committed."""
        return bool(self._files.exists(self._path(f"{self.numbered(number)}/commits/0"))) or bool(
            self._files.exists(self._path(f"{self.numbered(number)}/offsets"))
        )

    def _read(self) -> dict[str, Any] | None:
        path = self._path(f"{self.folder}/{_FILE}")
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._io.toString(stream, "UTF-8")
        finally:
            stream.close()
        found: dict[str, Any] = json.loads(text)
        return found
