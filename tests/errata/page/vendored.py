"""Takes the page's libraries from their npm packages, at pinned hashes: `make vendor`."""

import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "errata" / "page" / "assets" / "vendor"
_MAP = re.compile(rb"^//# sourceMappingURL=.*$\n?", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """An npm package: its integrity as the registry tells it, and the files that are taken."""

    name: str
    version: str
    integrity: str
    files: dict[str, str]


PACKAGES = (
    Package(
        "uplot",
        "1.6.32",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {
            "dist/uPlot.iife.min.js": "uPlot.js",
            "dist/uPlot.min.css": "uPlot.css",
            "LICENSE": "uPlot.LICENSE",
        },
    ),
    Package(
        "@dagrejs/dagre",
        "3.1.3",
        "X4aUTwOReZvthaZWOVHqlJ52/ZdhZFEM4+Lh/uR4XooUSLE6p71bcy7MPGzYnNUcNh+nj+i/qJQpCMIdQnSmrg==",
        {"dist/dagre.esm.js": "dagre.js", "LICENSE": "dagre.LICENSE"},
    ),
)
SHA256 = {
    "uPlot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "dagre.js": "cf85ac740ad206f01209bf030b903df8bebac87b965042de02b54d7e6a1e4055",
    "dagre.LICENSE": "6a349742a6cb219d5a2fc8d0844f6d89a6efc62e20c664450d884fc7ff2d6015",
}
"""What has to be in the folder."""


def taken(package: Package) -> dict[str, bytes]:
    """Return the content of the files that are taken, by name."""
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run(
            ["npm", "pack", "--silent", f"{package.name}@{package.version}"],
            cwd=folder, check=True, capture_output=True, text=True,
        )  # fmt: skip
        archive = Path(folder) / told.stdout.strip()
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != package.integrity:
            raise SystemExit(f"{archive.name} has the SHA-512 {found}, not {package.integrity}")
        with tarfile.open(archive) as packed:
            return {
                name: _MAP.sub(b"", packed.extractfile(f"package/{path}").read())
                for path, name in package.files.items()
            }


def main() -> None:
    for package in PACKAGES:
        for name, content in taken(package).items():
            (FOLDER / name).write_bytes(content)
            print(f'    "{name}": "{hashlib.sha256(content).hexdigest()}",')


if __name__ == "__main__":
    sys.exit(main())
