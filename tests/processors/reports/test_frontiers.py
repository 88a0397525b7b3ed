"""The tracker against a search of the graph: exact, whatever changes, in whatever order."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.reports.frontiers import CyclicTasksError, Line, Tracker

Graph = dict[str, list[str]]


def random_graph(rng: Random) -> Graph:
    """Tasks in a random order of declaration; each reads some of those numbered lower."""
    names = [f"t{number}" for number in range(rng.randint(1, 9))]
    reads = {
        name: rng.sample(names[:number], rng.randint(0, min(number, 3)))
        for number, name in enumerate(names)
    }
    return {name: reads[name] for name in rng.sample(names, len(names))}


def searched(graph: Graph, pointstamps: dict[str, int | None], task: str) -> int | None:
    """The least pointstamp of a task and of all above it, by walking upwards."""
    seen, work = set(), [task]
    while work:
        at = work.pop()
        seen.add(at)
        work += [above for above in graph[at] if above not in seen]
    return min((p for at in seen if (p := pointstamps.get(at)) is not None), default=None)


@given(seed=st.integers(0, 10**9))
def test_every_frontier_is_what_a_search_of_the_graph_finds(seed: int) -> None:
    rng = Random(seed)
    graph = random_graph(rng)
    tracker = Tracker("random", graph)
    pointstamps: dict[str, int | None] = {}
    for _ in range(30):
        for _ in range(rng.choice([1, 1, 2, 5])):
            task = rng.choice(list(graph))
            pointstamps[task] = rng.choice([None, *range(5)])
            tracker.update(task, pointstamps[task])
        tracker.propagate()
        for task in graph:
            assert tracker.first_open(task) == searched(graph, pointstamps, task), (graph, task)


def chain(length: int) -> Graph:
    return {f"t{n}": [f"t{n - 1}"] if n else [] for n in range(length)}


def test_nothing_moves_before_propagation() -> None:
    tracker = Tracker("chain", chain(2))
    tracker.update("t0", 3)
    assert tracker.first_open("t1") is None
    tracker.propagate()
    assert tracker.first_open("t1") == 3


def test_only_tasks_below_a_change_are_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker("chain", chain(1000))
    tracker.update("t0", 5)
    tracker.update("t997", 5)
    tracker.propagate()
    visited: list[int] = []
    may_change = Tracker._may_change
    monkeypatch.setattr(
        Tracker,
        "_may_change",
        lambda self, place, before, now: (
            visited.append(place) or may_change(self, place, before, now)
        ),
    )
    tracker.update("t997", None)  # t0 still keeps 5 open
    tracker.propagate()
    assert visited == []
    tracker.update("t997", 4)
    tracker.propagate()
    assert visited == [998, 999]


def test_a_task_is_left_alone_if_another_above_it_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracker = Tracker("meeting", {"ahead": [], "behind": [], "both": ["ahead", "behind"]})
    tracker.update("ahead", 7)
    tracker.update("behind", 3)
    tracker.propagate()
    asked = []
    monkeypatch.setattr(
        Tracker, "_may_change", lambda self, place, before, now: asked.append((before, now))
    )
    tracker.update("ahead", 8)
    tracker.propagate()
    monkeypatch.undo()
    assert asked == [(7, 8)]
    assert not tracker._may_change(2, 7, 8)
    assert tracker.first_open("both") == 3


@pytest.mark.parametrize("reads", [{"a": ["a"]}, {"a": ["c"], "b": ["a"], "c": ["b"], "d": []}])
def test_tasks_that_read_each_other_in_a_cycle_are_refused_by_name(reads: Graph) -> None:
    with pytest.raises(
        CyclicTasksError, match="network 'ring' read each other in a cycle"
    ) as caught:
        Tracker("ring", reads)
    cycle = caught.value.tasks
    assert cycle[0] == cycle[-1]
    for above, task in pairwise(cycle):
        assert above in reads[task]


@pytest.mark.parametrize(
    ("done", "epoch", "watermark"),
    [
        (3, 4, 90),  # before it was put back: as the reader knows it
        (3, 7, 20),  # it falls
        (6, 8, 90),  # a reader that has passed the epoch in which it fell knows a higher one since
        (6, 9, 100),
    ],
)
def test_a_watermark_falls_only_where_it_was_put_back(done, epoch, watermark) -> None:
    line = Line([6, 9], [20, 100], lowered=6)
    assert line.following(done, 90, epoch=epoch) == watermark
