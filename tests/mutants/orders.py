"""Bugs in the orders in which boxes run."""

from tests.mutants.mutant import RANDOM, Mutant

ORDERS = [
    Mutant(
        "activated boxes run in the order of their activation, the last one first",
        "processors/propagation/orders.py",
        'order."""\n        while self._queue:\n            box = heappop(self._queue)',
        'order."""\n        while self._queue:\n            box = self._queue.pop()',
        network=RANDOM,
    ),
    Mutant(
        "of those that read what was emitted only the first is activated",
        "processors/propagation/orders.py",
        "if emitted:\n            for reader in self._graph.readers[box]:",
        "if emitted:\n            for reader in self._graph.readers[box][:1]:",
        network=RANDOM,
    ),
    Mutant(
        "a box with work of its own runs again when the one before it in its chain emits",
        "processors/propagation/orders.py",
        "elif follower not in self._activated:  # else",
        "else:  #",
        network="chain",
    ),
    Mutant(
        "an aggregate whose windows close beside the input of others is left out",
        "processors/tasks/scope_run.py",
        "for name, end in closes.items() if end <= watermark)",
        "for name, end in closes.items() if end < watermark and not inputs)",
        network="whole_contents",
    ),
]
