"""Follows the README as a newcomer would, from a clone to the first correction, and times it.

`make newcomer`. The commands are those of the README's first block of commands, to the letter, in
an environment of their own; only the port of the page is another one.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
LIMIT_S = 300.0


def commands() -> list[str]:
    """The commands of the README that a newcomer types first, without their comments."""
    text = (ROOT / "README.md").read_text()
    block = text.split("Try it on your own data", 1)[1]
    lines = re.findall(r"^    (\S.*)$", block, re.MULTILINE)
    return [
        line.partition("  #")[0].strip() for line in lines if line.startswith(("pip", "errata"))
    ]


def first_correction(command: str, folder: Path, environ: dict[str, str], log: Path) -> None:
    """Run `errata dev` until its page shows a result that was corrected."""
    with log.open("wb") as out:
        dev = subprocess.Popen(
            f"exec {command} --port 0", shell=True, cwd=folder, env=environ, stdout=out, stderr=out,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        until_s = time.monotonic() + LIMIT_S
        while not is_corrected(log):
            if dev.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"no correction was seen:\n{log.read_text()}")
            time.sleep(0.1)
    finally:
        dev.terminate()
        dev.wait(30)


def is_corrected(log: Path) -> bool:
    urls = re.findall(r"page: (http://\S+)", log.read_text())
    if not urls:
        return False
    with urlopen(f"{urls[-1]}arcs/minutes/history", timeout=30) as answer:
        return any(line["op"] == "replace" for line in json.load(answer)["revisions"])


def main() -> int:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="errata-newcomer-") as temporary:
        clone, log = Path(temporary) / "errata", Path(temporary) / "dev.log"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        venv.create(Path(temporary) / "venv", with_pip=True)
        own = {n: v for n, v in os.environ.items() if not n.startswith(("ERRATA_", "PYTHON"))}
        own["PATH"] = os.pathsep.join([str(Path(temporary) / "venv" / "bin"), own["PATH"]])
        own["VIRTUAL_ENV"] = str(Path(temporary) / "venv")
        *before, dev = commands()
        for command in before:
            done = subprocess.run(
                command, shell=True, cwd=clone, env=own, capture_output=True, text=True, check=False
            )
            print(f"{time.monotonic() - began_s:6.1f} s  {command}", flush=True)
            if done.returncode:
                raise SystemExit(done.stdout + done.stderr)
        first_correction(dev, clone, own, log)
        print(f"{time.monotonic() - began_s:6.1f} s  {dev}: the first correction is seen")
        again_s = time.monotonic()
        first_correction(dev, clone, own, log)
        print(f"{time.monotonic() - again_s:6.1f} s  the second time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
