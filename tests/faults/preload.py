"""A slow or failing disk, and a shifted clock, of single processes: the shim of `preload.c`.

control = folder / "control"
write(control)
process = subprocess.Popen(command, env=os.environ | environ(control))
write(control, fsync_ms=500, shift_s=-3600)     # takes effect within 100 ms
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("preload.c")
CACHE = Path(__file__).parents[2] / ".cache" / "faults"

TAKEN_S = 0.1
"""How long it takes until a process knows of a change."""


def compiled() -> Path | None:
    """Return the shim, compiled once; None without a C compiler or outside Linux.

    Raises:
        RuntimeError: If it does not compile.
    """
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    library = CACHE / f"preload-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            made = Path(folder) / library.name
            options = ["-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-o", str(made)]
            completed = subprocess.run(
                [compiler, *options, str(SOURCE), "-ldl", "-lpthread"],
                capture_output=True,
                text=True,
                check=False,
            )
            if completed.returncode:
                raise RuntimeError(f"{SOURCE} does not compile:\n{completed.stderr}")
            made.rename(library)  # another process may do the same
    return library


def environ(control: Path) -> dict[str, str]:
    """Return what to add to the environment of a process, so that a control file harms it.

    The processes that it starts are harmed too.

    Raises:
        RuntimeError: If there is no shim here: see `compiled`.
    """
    library = compiled()
    if library is None:
        raise RuntimeError("faults of disk and clock need Linux and a C compiler named cc")
    others = os.environ.get("LD_PRELOAD")
    loaded = f"{library}:{others}" if others else str(library)
    return {"LD_PRELOAD": loaded, "ERRATA_FAULTS": str(control.absolute())}


def write(
    control: Path, *, fsync_ms: int = 0, fsync_fails: bool = False, shift_s: float = 0
) -> None:
    """Say what the processes of a control file suffer from now on; by default nothing.

    Args:
        control: The file.
        fsync_ms: How long every fsync and fdatasync takes in addition, in ms.
        fsync_fails: Whether they fail with EIO, without having been done.
        shift_s: By how much the wall clock is ahead, in s; times of files are not.
    """
    text = f"{fsync_ms} {int(fsync_fails)} {round(shift_s * 1000)}\n"
    new = control.with_name(control.name + ".new")
    new.write_text(text)
    new.rename(control)


def harmed(control: Path) -> int:
    """Return how many calls of fsync were slowed or failed so far."""
    try:
        return control.with_name(control.name + ".harmed").stat().st_size
    except FileNotFoundError:
        return 0
