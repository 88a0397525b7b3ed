"""Kill processes of the demo's network while its tape plays."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, sleep

from errata.demo.run import Stage


def moments(
    victims: Sequence[str], *, seconds: float, chance: random.Random
) -> list[tuple[float, str]]:
    """Return a moment for each victim, in their order, spread over some seconds."""
    share = seconds / (len(victims) or 1)
    return [(chance.uniform(i, i + 1) * share, victim) for i, victim in enumerate(victims)]


def played(
    on: Stage, kills: Iterable[tuple[float, str]], kill: Callable[[str], bool], *, seconds: float
) -> Counter[str]:
    """Play the tape to its end and kill meanwhile, and after it if some are left.

    Args:
        on: The network; it has begun.
        kills: Whom to kill when, in seconds.
        kill: Kills one; returns whether there was one. If not, it is tried again.
        seconds: The tape's.

    Returns:
        How often each was killed.
    """
    planned, killed = deque(kills), Counter[str]()
    with on.ticker(seconds=seconds) as playing:
        start, ended = monotonic(), False
        while planned or not ended:
            on.supervisor.poll()
            if planned and monotonic() - start >= planned[0][0]:
                victim = planned[0][1]
                if kill(victim):  # else it is down, and comes up soon
                    killed[victim] += 1
                    planned.popleft()
            if not ended and playing.poll() is not None:
                assert playing.returncode == 0, playing.communicate()[1].decode()
                on.end()
                ended = True
            sleep(0.02)
    return killed
