"""The faults of a network, reported before anything runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from errata.schemas.errors import ErrataError


@dataclass(frozen=True)
class Place:
    """A position in the user's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @classmethod
    def of_caller(cls) -> Place:
        """Return the nearest place on the stack outside Errata's own code."""
        package_prefix = f"{Path(__file__).parents[1]}{os.sep}"
        frame = sys._getframe(1)
        while frame.f_back is not None and (
            # a dataclass's own methods are in "<string>"
            frame.f_code.co_filename.startswith(("<string>", package_prefix))
        ):
            frame = frame.f_back
        return cls(Path(frame.f_code.co_filename).name, frame.f_lineno)


@dataclass(frozen=True)
class Fault:
    """One thing that keeps a network from running.

    Args:
        box: Name of the box, arc or source.
        need: What it needs.
        found: What was found instead.
        remedy: What the user can do.
        place: Place of its declaration.
    """

    box: str
    need: str
    found: str
    remedy: str
    place: Place | None = None

    def __str__(self) -> str:
        position = f" ({self.place})" if self.place else ""
        return f"{self.box}{position}: needs {self.need}; found {self.found}; {self.remedy}"


class NetworkError(ErrataError):
    """A network that can't work; `faults` holds one entry per fault."""

    def __init__(self, network: str, faults: Sequence[Fault]) -> None:
        self.network, self.faults = network, tuple(faults)
        count = len(self.faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        super().__init__(
            f"network {network!r} can't run: {count} fault{'s' if count != 1 else ''}\n{lines}"
        )
