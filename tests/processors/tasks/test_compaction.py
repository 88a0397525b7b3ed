"""Deletes that await a tombstone, compared with a plain list of all of them."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.arcs.partitioner import Emission
from errata.processors.tasks.compaction import Deleted, PendingTombstones
from errata.schemas import revisions as frames

KEYS = [b"k0", b"k1", b"k2"]
WRITES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([0, 1]),
        st.sampled_from(KEYS),
        st.sampled_from([frames.INSERT, frames.DELETE, frames.REPLACE]),
    ),
    max_size=30,
)
PASSED = st.tuples(*[st.integers(-1, 30)] * 4)


@given(WRITES, st.lists(PASSED, min_size=1, max_size=3))
def test_due_are_the_last_records_of_their_keys_that_all_readers_have_passed(writes, passes):
    pending, last = PendingTombstones(), dict[Deleted, tuple[int, int]]()
    for epoch, (arc, partition, key, op) in enumerate(writes):
        pending.add(
            Emission(
                arc,
                epoch,
                pl.DataFrame({"op": [op]}, schema={"op": pl.UInt8}),
                pl.Series([partition], dtype=pl.Int32),
            ),
            [key],
        )
        last[Deleted(arc, partition, key)] = epoch, op
    for passed in passes:
        upto = dict(zip([("a", 0), ("a", 1), ("b", 0), ("b", 1)], passed, strict=True))
        due = pending.due(lambda arc, partition, upto=upto: upto[arc, partition])
        wanted = {
            deleted
            for deleted, (epoch, op) in last.items()
            if op == frames.DELETE and epoch <= upto[deleted.arc, deleted.partition]
        }
        assert len(due) == len(wanted)
        assert set(due) == wanted
        pending.remove(due)
        last = {deleted: at for deleted, at in last.items() if deleted not in wanted}
