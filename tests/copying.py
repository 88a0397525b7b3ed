"""Copies of folders whose files come and go."""

import shutil
from pathlib import Path


def copy_open(folder: Path, target: Path) -> None:
    """Copy a folder that is in use; begin again if a file is deleted meanwhile."""
    while True:
        try:
            shutil.copytree(folder, target)
        except shutil.Error:
            shutil.rmtree(target)
        else:
            return
