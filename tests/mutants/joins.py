"""Bugs in joins."""

from tests.mutants.mutant import WITH_JOINS, Mutant

JOINS = [
    Mutant(
        "a left tuple without a key is forgotten",
        "processors/boxes/join.py",
        'right_on=list(self.on), how="semi", nulls_equal=True',
        'right_on=list(self.on), how="semi", nulls_equal=False',
        network=WITH_JOINS,
    ),
    Mutant(
        "what a revision took away was never there",
        "processors/boxes/base.py",
        "return pl.concat([remaining, frames.leaving(revisions, names)])",
        "return remaining.select(names)",
        network=WITH_JOINS,
    ),
    Mutant(
        "a pair happened when the earlier of its tuples did",
        "processors/boxes/join.py",
        "pl.max_horizontal(side.column",
        "pl.min_horizontal(side.column",
        network=WITH_JOINS,
    ),
    Mutant(
        "sides that are partitioned by other fields are taken to lie together",
        "processors/compile/join.py",
        "if not by or tuple(map(its.get, by)) != right.partition_by:",
        "if not by:",
        network=WITH_JOINS,
    ),
    Mutant(
        "sides joined on less than the identity of the arc they come from need no history",
        "processors/compile/join.py",
        "not top.exchange and set(top.identity) <= alike:",
        "not top.exchange:",
        network=WITH_JOINS,
    ),
    Mutant(
        "pairs below which windows are replayed are looked for in the windows alone",
        "processors/compile/modes.py",
        "extent_ms += producer.extent_ms",
        "extent_ms += producer.extent_ms % 2**62",
        network=WITH_JOINS,
    ),
]
