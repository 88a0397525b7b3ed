"""Leaves out of the image's installed packages what no role runs: a fifth of them.

Of Spark: machine learning, Hive, Connect's server, and its shell. A job that needs one of these has
an image of its own, with pyspark as it is published.
"""

import shutil
from pathlib import Path
from sysconfig import get_path
from zipfile import ZIP_DEFLATED, ZipFile

FOLDERS = ("pyspark/examples", "pyspark/data", "pandas/tests", "pyarrow/tests", "pyarrow/include")
JARS = (
    *("spark-mllib*", "spark-graphx*", "breeze*", "spire*", "cats-kernel*", "algebra*"),
    *("arpack*", "blas*", "lapack*", "JTransforms*", "JLargeArrays*"),
    *("spark-hive*", "hive-[!s]*", "hive-se*", "hive-sh*"),  # ORC wants hive-storage-api
    *("derby*", "datanucleus*"),
    *("spark-connect*", "connect-repl", "spark-repl*", "scala-compiler*"),
)
NATIVE = {".so", ".jnilib", ".dll"}
MACHINES = ("linux64.so", "linux-aarch64.so")  # of RocksDB's native code, for fourteen


def keep(jar: Path, machines: tuple[str, ...]) -> None:
    """Write a jar again with the native code of some machines alone."""
    whole = jar.rename(jar.with_suffix(".whole"))
    with ZipFile(whole) as old, ZipFile(jar, "w", ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if Path(entry.filename).suffix not in NATIVE or entry.filename.endswith(machines):
                new.writestr(entry, old.read(entry))
    whole.unlink()


packages = Path(get_path("purelib"))
for name in FOLDERS:
    shutil.rmtree(packages / name)
jars = packages / "pyspark" / "jars"
for pattern in JARS:
    found = list(jars.glob(pattern))
    if not found:
        raise SystemExit(f"pyspark has no {pattern} to leave out; correct docker/lean.py")
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
for jar in jars.glob("rocksdbjni-*.jar"):
    keep(jar, MACHINES)
