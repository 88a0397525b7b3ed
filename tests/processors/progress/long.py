"""Hundreds of thousands of random moves.

Run it as ``python -m tests.processors.progress.long --steps 300000 --seed 1``.
"""

import argparse
import time
from random import Random

from errata.processors.progress.operate import Interest
from tests.processors.progress import flat, nested


def run(steps: int, seed: int) -> dict[str, int]:
    """Let random graphs and nests of scopes live until that many moves are made."""
    done = {"moves of nodes": 0, "graphs": 0, "moves in scopes": 0, "nests": 0}
    while done["moves of nodes"] + done["moves in scopes"] < steps:
        rng = Random(f"{seed}/{done['graphs']}")
        try:
            graph = flat.Flat(rng, rng.randrange(3))
            done["moves of nodes"] += flat.live(graph, rng.choice([30, 300]), check=0.2)
            done["graphs"] += 1
            interest = rng.choice([None, Interest.ALWAYS])
            world = nested.World(rng, interest=interest, check=0.02)
            done["moves in scopes"] += nested.live(world, rng.choice([30, 300]), check=0.2)
            done["nests"] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, graph {done['graphs']}, nest {done['nests']}")
            raise
    return done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    began = time.monotonic()
    print(run(chosen.steps, chosen.seed), f"{time.monotonic() - began:.0f} s")
