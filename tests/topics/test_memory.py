"""What the cluster in memory does beyond Kafka: faults, a clock, a cleaner on demand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.topics.cluster import DoubtfulCommitError, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.memory_log import MemoryLog, Transaction

SOURCE = TopicPartition("log", 0)
STEPS = ["begin", "produce", "flush", "offsets", "commit", "committed"]


class Killed(Exception):
    pass


def memory(**options) -> MemoryCluster:
    cluster = MemoryCluster(**options)
    cluster.create(SOURCE.topic, 1)
    return cluster


def run(cluster: MemoryCluster, *values: bytes) -> None:
    life = cluster.transactions("task")
    life.begin()
    life.produce("log", partitions=[0] * len(values), keys=values, values=values)
    life.flush()
    life.offsets("group", {SOURCE: 7})
    life.commit()


def values(cluster: MemoryCluster) -> list[bytes | None]:
    return [v for records in cluster.reader({SOURCE: 0}).poll() for v in records.values]


@pytest.mark.parametrize("step", STEPS)
def test_an_actor_killed_at_a_step_has_committed_only_if_the_commit_took_effect(step):
    steps = []

    def die(name: str) -> None:
        steps.append(name)
        if name == step:
            raise Killed

    cluster = memory(on_step=die)
    with pytest.raises(Killed):
        run(cluster, b"a")
    assert steps == STEPS[: STEPS.index(step) + 1]
    cluster.on_step = None
    cluster.transactions("task")  # the next life, which aborts what is open
    assert values(cluster) == ([b"a"] if step == "committed" else [])
    assert cluster.groups == ({"group": {SOURCE: 7}} if step == "committed" else {})


def test_polls_and_sends_are_steps_too():
    steps = []
    cluster = memory(on_step=steps.append)
    cluster.send("log", partition=0, key=None, value=b"x")
    cluster.reader({SOURCE: 0}).poll()
    assert steps == ["send", "poll"]


def test_a_late_commit_exposes_half_of_a_transaction_and_leaves_its_own_commit_doubtful():
    cluster = memory()
    life = cluster.transactions("task")
    life.begin()
    life.produce("log", partitions=[0], keys=[b"a"], values=[b"a"])
    cluster.late_end_txn("task")
    life.produce("log", partitions=[0] * 3, keys=[b"k"] * 3, values=[b"b", b"c", b"d"])
    assert values(cluster) == [b"a", b"b", b"c"]
    with pytest.raises(DoubtfulCommitError):
        life.commit()
    assert values(cluster) == [b"a", b"b", b"c"]
    with pytest.raises(DoubtfulCommitError):
        life.begin()
    run(cluster, b"e")  # a new life; the fault does not repeat
    assert values(cluster) == [b"a", b"b", b"c", b"e"]


def test_record_times_come_from_the_clock():
    cluster = memory(clock_ms=lambda: 42)
    run(cluster, b"a", b"b")
    assert cluster.reader({SOURCE: 0}).poll()[0].times_ms == [42, 42]


def test_the_cleaner_keeps_the_last_record_of_a_key_below_its_horizon():
    cluster = memory()
    for key, value in [(b"k", b"1"), (b"l", b"2"), (b"k", b"3"), (b"k", b"4")]:
        cluster.send("log", partition=0, key=key, value=value)
    cluster.compact("log", horizons=[3])
    assert values(cluster) == [b"2", b"3", b"4"]
    assert cluster.end(SOURCE) == 4


def test_a_tombstone_goes_one_pass_after_the_record_that_it_ended():
    cluster = memory()
    cluster.send("log", partition=0, key=b"k", value=b"1")
    cluster.send("log", partition=0, key=b"k", value=None)
    cluster.compact("log", horizons=[2])
    assert values(cluster) == [None]
    cluster.compact("log", horizons=[2])
    assert values(cluster) == []


def test_the_cleaner_leaves_an_open_transaction_and_what_is_behind_it():
    cluster = memory()
    cluster.send("log", partition=0, key=b"k", value=b"1")
    life = cluster.transactions("task")
    life.begin()
    life.produce("log", partitions=[0], keys=[b"k"], values=[b"2"])
    cluster.send("log", partition=0, key=b"k", value=b"3")
    cluster.compact("log", horizons=[3])
    life.commit()
    assert values(cluster) == [b"1", b"2", b"3"]


def test_no_partition_starves_when_another_has_more_than_the_limit():
    cluster = MemoryCluster()
    cluster.create("two", 2)
    for partition in (0, 0, 0, 1):
        cluster.send("two", partition=partition, key=None, value=b"%d" % partition)
    reader = cluster.reader({TopicPartition("two", p): 0 for p in range(2)})
    assert [reader.poll(limit=2)[0].source.partition for _ in range(2)] == [0, 1]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["write", "delete", "commit", "abort", "clean"])
    ),
    max_size=40,
)


@given(ACTIONS, st.integers(1, 5))
def test_reading_in_pieces_and_cleaning_never_change_what_a_log_folds_to(actions, limit):
    """Folds the log after any history: last committed value by key, tombstones absent."""
    log = MemoryLog(SOURCE)
    open_, pending, expected = Transaction(), [], {}
    written = False
    for key, action in actions:
        if action in ("write", "delete"):
            value = b"%d" % log.end if action == "write" else None
            log.append([key.encode()], [value], time_ms=0, transaction=open_)
            pending.append((key.encode(), value))
            written = True
        elif action == "clean":
            log.compact(log.end)
        elif written:
            open_.state = "committed" if action == "commit" else "aborted"
            log.close(open_)
            if action == "commit":
                expected.update(pending)
            open_, pending, written = Transaction(), [], False
    folded, position, offsets = {}, 0, []
    while position < log.last_stable_offset:
        records, position = log.read(position, limit)
        folded.update(zip(records.keys, records.values, strict=True))
        offsets += records.offsets
        assert len(records) <= limit
    assert offsets == sorted(set(offsets))
    assert {k: v for k, v in folded.items() if v} == {k: v for k, v in expected.items() if v}
