"""Hundreds of thousands of random moves.

Run it as ``python -m tests.processors.progress.long --steps 300000 --seed 1``.
"""

import argparse
import time
from random import Random

from tests.processors.progress.flat import Flat, live


def run(steps: int, seed: int) -> dict[str, int]:
    """Let random graphs live until that many moves are made."""
    done = {"moves": 0, "graphs": 0}
    while done["moves"] < steps:
        rng = Random(f"{seed}/{done['graphs']}")
        try:
            graph = Flat(rng, rng.randrange(3))
            done["moves"] += live(graph, rng.choice([30, 300]), check=0.2)
            done["graphs"] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, graph {done['graphs']}")
            raise
    return done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    began = time.monotonic()
    print(run(chosen.steps, chosen.seed), f"{time.monotonic() - began:.0f} s")
