"""Processes of a campaign say on SIGUSR1 what they do: the stacks of all threads, and of all tasks.

A task that waits is a generator: it is on no thread's stack.
"""

import faulthandler
import gc
import signal
import sys
from typing import Any


def _waits_at(steps: Any) -> str:
    """Return the functions of a suspended generator, the outermost first."""
    places = list[str]()
    while (frame := getattr(steps, "gi_frame", None)) is not None:
        places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        steps = steps.gi_yieldfrom
    return " > ".join(places)


def _show(number: int, frame: Any) -> None:
    gc.unfreeze()  # what a process has made before its work is not listed else
    for each in gc.get_objects():
        kind = type(each).__name__
        if kind == "Worker":
            for actor, steps in list(getattr(each, "steps", {}).items()):  # it may be starting
                print(f"{actor.name} waits at {_waits_at(steps)}", file=sys.stderr)
        elif kind == "Sweeper":
            copy = f"copy up to {each.store.upto}, incomplete up to {each.incomplete_upto}"
            told = each.shared.view.complete(each.arc.name, each.partition)
            print(f"{each.name}: {copy}, complete {told}, {each.full}", file=sys.stderr)
        elif kind == "KafkaReader" and each._consumer is not None:
            ends = {place: each.known_end(place) for place in each._sources}
            print(f"a reader is at {each._positions}, ends {ends}", file=sys.stderr)
    sys.stderr.flush()


signal.signal(signal.SIGUSR1, _show)
faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)
