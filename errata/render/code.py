"""Finds a network for containers: in their image, or in a mounted file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from errata.schemas.errors import ErrataError
from errata.settings.loading import file_of

FOLDER = "/network"
"""The working folder of the image, where a network's file is mounted."""
_LARGEST = 1_000_000


class NotOneFileError(ErrataError):
    """A network can't be mounted in containers as one file."""


@dataclass(frozen=True)
class Code:
    """A network as containers refer to it.

    Args:
        reference: Its reference on command lines in containers.
        file: Its file; None if it is a module in the image.
    """

    reference: str
    file: Path | None = None

    @property
    def text(self) -> str:
        """The content of the file."""
        assert self.file is not None
        return self.file.read_text(encoding="utf-8")


def code_of(reference: str) -> Code:
    """Return where containers find a network that has just been loaded.

    Raises:
        NotOneFileError: If its file imports others beside it, or is too large for a ConfigMap.
    """
    file, name = file_of(reference)
    if file is None:
        return Code(reference)
    folder = file.resolve().parent
    beside = sorted(
        {
            Path(found).name
            for module in list(sys.modules.values())
            if (found := getattr(module, "__file__", None))
            and Path(found).resolve().parent == folder
            and Path(found).resolve() != file.resolve()
        }
    )
    remedy = "put them in an image made from Errata's, and name the network as module:name"
    if beside:
        raise NotOneFileError(f"{file.name} imports {', '.join(beside)} beside it; {remedy}")
    if file.stat().st_size > _LARGEST:
        raise NotOneFileError(f"{file.name} has more than {_LARGEST} bytes; {remedy}")
    return Code(f"{file.name}:{name}" if name else file.name, file)
