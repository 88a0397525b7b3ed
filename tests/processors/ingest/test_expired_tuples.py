"""The index forgets tuples that no revision may concern any more, and only those."""

import pytest

from tests.processors.ingest.test_owner_task import delete, insert, replace, row, running

KEEP = 100
BATCH, BATCHES = 200, 60


def entries(world) -> int:
    """Return how many tuples the indexes of all tasks have."""
    held = [task.held_tuples for task in world.tasks.values() if task.held_tuples is not None]
    return sum(len(keys) for each in held for keys, _ in each.index.parts(1_000))


def test_reach_is_keep_where_nothing_replays_a_source():
    with running(keep=KEEP) as world:
        assert world.plan.reach_ms == {"trades": KEEP}


def test_an_index_is_flat_over_a_hundred_times_keep(monkeypatch):
    monkeypatch.setattr("errata.processors.ingest.held_tuples.EXPIRED_ROWS", 1)
    with running(keep=KEEP) as world:
        world.epoch, sizes = 10**9, list[int]()
        for batch in range(BATCHES):
            at = batch * 200
            for partition in (0, 1):
                keys = [f"{partition}/{batch}/{n}" for n in range(BATCH // 2)]
                world.send(partition, *(insert(key, at=at) for key in keys))
            world.close_epoch()
            sizes.append(entries(world))
        assert max(sizes[10:]) <= 1.2 * max(sizes[2:10])
        assert sizes[-1] >= 2 * (BATCH // 2)  # those that may be revised are all there
        assert world.counted("inserted") == BATCH * BATCHES


@pytest.mark.parametrize("removed", [True, False])
def test_records_are_judged_alike_whether_the_index_has_forgotten_or_not(removed, monkeypatch):
    if not removed:
        monkeypatch.setattr(
            "errata.processors.ingest.held_tuples.HeldTuples.remove_expired", lambda *_, **__: None
        )
    monkeypatch.setattr("errata.processors.ingest.held_tuples.EXPIRED_ROWS", 1)
    with running(keep=KEEP) as world:
        world.epoch = 10**9
        world.send(0, *(insert(key, at=1) for key in "abcd"), insert("moved", at=1))
        world.send(1, insert("y", at=1))
        world.close_epoch()
        # "moved" has another event time by then, and stays
        world.send(0, replace(row("moved", at=1), row("moved", at=500)), insert("x", at=500))
        world.send(1, insert("z", at=500))
        world.close_epoch()
        world.send(0, insert("w", at=500))
        world.close_epoch()
        assert entries(world) == (4 if removed else 9)
        world.send(
            0,
            delete("a", at=1),
            b'{"op": "delete", "before": {"key": "b"}}',
            replace(row("c", at=1), row("c", at=500)),
            insert("d", price=7, at=500),
            delete("moved", at=500),
        )
        world.close_epoch()
        reasons = {letter.offset: letter.reason for letter in world.letters()}
        assert reasons == {8: "older than keep", 9: "unknown identity", 10: "older than keep"}
        assert sorted(each[1:] for each in world.revisions()[-2:]) == [
            ("delete", "moved", 1, None),
            ("insert", "d", None, 7),
        ]


def test_an_index_without_lists_is_read_from_the_arc_again(monkeypatch, caplog):
    with running(keep=KEEP) as world:
        world.epoch = 10**9
        world.send(0, *(insert(key, at=1) for key in "abcd"))
        world.close_epoch()
        names = [name for name in world.tasks if "owner" in name]
        for name in names:
            world.end(name)
        with monkeypatch.context() as older:
            older.setattr("errata.processors.ingest.identity_index.Index._list", lambda *_: None)
            older.setattr("errata.processors.ingest.identity_index.Index.lacks_lists", True)
            for name in names:
                world.start(name)
            assert "of an older version" in caplog.text
            world.send(0, insert("e", at=1))
            world.close_epoch()
            for name in names:
                world.end(name)
        for name in names:
            world.start(name)
        world.send(0, insert("x", at=500))
        world.send(1, insert("y", at=500))
        world.close_epoch()
        world.send(0, insert("z", at=500))
        world.close_epoch()
        assert entries(world) >= 3
