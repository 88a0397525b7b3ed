"""Bugs in what `errata why` tells."""

from tests.mutants.mutant import Mutant

LAWS, KNOWN = "tests/laws/test_why.py", "tests/errata/client/test_why.py"

WHY = [
    Mutant(
        "each revision near a result passes for its cause",
        "errata/client/why.py",
        "for row in tried if not is_same(_without(changes, name, row))]]",
        "for row in tried]]",
        tests=LAWS,
    ),
    Mutant(
        "a result is explained by the epoch before, although it is not what it was then",
        "errata/client/why.py",
        "for since in dict.fromkeys((epoch - 1, previous)):",
        "for since in (epoch - 1,):",
        tests=KNOWN,
    ),
    Mutant(
        "a window is not made of the tuples at its start",
        "processors/boxes/aggregating.py",
        'is_between(self.start, "@end", closed="left")',
        'is_between(self.start, "@end", closed="none")',
        tests=LAWS,
    ),
    Mutant(
        "a result does not depend on what its group held",
        "processors/boxes/lineage.py",
        "trace = box.dependencies if widely else box.lineage",
        "trace = box.lineage if widely else box.dependencies",
        tests=LAWS,
    ),
    Mutant(
        "a pair is made of its left tuple alone",
        "processors/boxes/join.py",
        "others = [among(right, results, names)] if names else []",
        "others = [among(right, results, names).clear()] if names else [right.clear()]",
        tests=LAWS,
    ),
    Mutant(
        "a loop is traced through its last round alone",
        "processors/boxes/iterate.py",
        "for before in reversed(rounds):",
        "for before in rounds[-1:]:",
        tests=KNOWN,
    ),
    Mutant(
        "a lag is made of its own tuple alone",
        "processors/boxes/ordered.py",
        "return np.maximum(own - self.reach, ordered.start[own]), own + 1",
        "return own, own + 1",
        tests=KNOWN,
    ),
    Mutant(
        "a result did not wait for the watermark",
        "errata/client/why.py",
        "has_closed = bool(waited) and not is_same(changes, before)",
        "has_closed = False",
        tests=LAWS,
    ),
    Mutant(
        "what a job has not read yet passes for a cause",
        "errata/client/why.py",
        "if scope in topology.jobs:  #",
        "if scope in ():  #",
        tests=LAWS,
    ),
    Mutant(
        "a tuple that moves between partitions is explained twice",
        "errata/client/why.py",
        'found = [_net(arc, part) for part in own.partition_by("epoch")]',
        "found = [own.select(_net(arc, own.clear()).columns)]",
        tests=LAWS,
    ),
    Mutant(
        "the last record that says the same passes for the origin",
        "errata/client/origin.py",
        "chosen = in_time[-1:] if in_time.height else made[:1]",
        "chosen = made[-1:]",
        tests=KNOWN,
    ),
    Mutant(
        "a record is looked for by its time alone",
        "errata/client/origin.py",
        "if None in found and any(starts.values()):",
        "if False:",
        tests=KNOWN,
    ),
]
