"""L6 for jobs on Spark: kill drivers, executors and workers while the demo's tape plays.

``python -m tests.spark_jobs.kills --kills 20`` is the long form; the test has a short one.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from errata.demo.audit.verdict import Verdict, audit
from errata.demo.run import END_LIMIT_S, START_LIMIT_S, await_until, stage
from tests.conftest import QUICK_JAVA
from tests.errata.demo.killing import moments, played
from tests.spark_jobs.cluster import SparkCluster, spark_cluster

ROOT = Path(__file__).parents[2]
DRIVER, EXECUTOR, WORKER = "driver", "executor", "worker"
KINDS = (DRIVER, EXECUTOR, EXECUTOR)
WHOLE = "tests.spark_jobs.whole:net"


def options(cluster: SparkCluster) -> list[str]:
    """Return the options of `errata spark` for a cluster."""
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.defaultJavaOptions": QUICK_JAVA,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.task.maxFailures": "8",
    }
    pairs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return ["--master", cluster.url, *pairs]


def play(
    kinds: Sequence[str], *, seconds: float, seed: int, whole: bool = False
) -> tuple[Verdict, Counter[str], str]:
    """Play the tape, and kill some of these kinds meanwhile.

    Args:
        kinds: What is killed, in this order.
        seconds: How long the tape plays.
        seed: Seed of the moments.
        whole: Whether all boxes are on Spark. Then the totals are not revised in the same epochs.

    Returns:
        The audit's verdict, what was killed, and what the processes said.
    """
    dice, said = random.Random(seed), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="errata-kills-") as folder,
        spark_cluster(Path(folder), workers=2) as cluster,
        stage(
            said.append,
            spark=True,
            spark_options=options(cluster),
            reference=WHOLE if whole else "",
        ) as on,
    ):
        on.supervisor.start()
        await_until(on, on.not_started, limit_s=4 * START_LIMIT_S, what="start")

        def kill(kind: str) -> bool:
            if kind == WORKER:
                cluster.kill_worker(dice.randrange(2))
                return True
            if kind == EXECUTOR:
                return cluster.kill_executor(dice.randrange(2))
            return on.supervisor.kill("spark")

        killed = played(on, moments(kinds, seconds=seconds, chance=dice), kill, seconds=seconds)
        await_until(on, on.behind, limit_s=4 * END_LIMIT_S, what="process the tape to its end")
        verdict = audit(on.broker.settings, spark=True)
        verdict = replace(verdict, mode_differences=[]) if whole else verdict
    return verdict, killed, "\n".join(said)


def main() -> int:
    """Run the long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument(
        "--seconds", type=float, default=0, help="the tape's; 20 a kill if not given"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="all boxes on Spark")
    given = parser.parse_args()
    kinds = [KINDS[number % len(KINDS)] for number in range(given.kills)]
    seconds = given.seconds or 20.0 * given.kills
    verdict, killed, said = play(kinds, seconds=seconds, seed=given.seed, whole=given.whole)
    print(said)
    print(f"killed: {dict(killed)}; load {os.getloadavg()[0]:.1f}")
    print("\n".join(verdict.lines()))
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
