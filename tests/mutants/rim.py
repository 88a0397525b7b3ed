"""Bugs in input and output: envelopes, owners of identities, sinks."""

from tests.mutants.mutant import RANDOM, Mutant

RIM = [
    Mutant(
        "an upsert without a value is passed over",
        "processors/envelopes/upsert.py",
        "if absent:",
        "if absent and not len(rows):",
        network=RANDOM,
    ),
    Mutant(
        "an update is an insert",
        "processors/envelopes/debezium.py",
        '"u": REPLACE,',
        '"u": INSERT,',
        network=RANDOM,
    ),
    Mutant(
        "a tombstone of a database is refused",
        "processors/envelopes/debezium.py",
        "_TRUNCATED_DETAIL) for row in truncated]",
        "_TRUNCATED_DETAIL) for row in [*truncated, *absent]]",
        network=RANDOM,
    ),
    Mutant(
        "an owner takes what was passed on offset by offset",
        "processors/ingest/owner_task.py",
        'passed = passed.sort("partition", "offset")',
        'passed = passed.sort("offset", "partition")',
        network="rekeyed",
    ),
    Mutant(
        "an owner takes identities that others own",
        "processors/ingest/owner_task.py",
        "own = by_column.kept(decoded.frame, places == self.partition)",
        "own = decoded.frame.filter(places >= 0)",
        network="rekeyed",
    ),
    Mutant(
        "a record that changes its identity goes to one owner",
        "processors/ingest/ingest_task.py",
        "where = given.select(ROW, owner).unique(maintain_order=True)",
        "where = given.select(ROW, owner).unique(ROW, maintain_order=True)",
        network="rekeyed",
    ),
    Mutant(
        "sinks show what only the hidden part was changed of",
        "schemas/arc.py",
        'return revisions.filter((pl.col("op") != frames.REPLACE) | ~same)',
        'return revisions.filter((pl.col("op") == frames.REPLACE) | ~same)',
        network=RANDOM,
    ),
    Mutant(
        "what moves between partitions has two writers of a sink",
        "processors/compile/sources_and_sinks.py",
        "has_order = not arc.exchange and set(arc.partition_by) <= set(arc.identity)",
        "has_order = not arc.exchange or set(arc.partition_by) <= set(arc.identity)",
        network=RANDOM,
    ),
    Mutant(
        "tombstones in a sink stand before their deletes",
        "processors/envelopes/outgoing.py",
        "both[1][np.cumsum(times)[is_delete] - 1] = None",
        "both[1][np.cumsum(times)[is_delete] - 2] = None",
        network=RANDOM,
    ),
    Mutant(
        "an upsert sink keeps what is deleted",
        "processors/envelopes/outgoing.py",
        "return keys, values.tolist()",
        "return np.array(keys, object)[~is_delete].tolist(), values[~is_delete].tolist()",
        network=RANDOM,
    ),
]
