"""What operators may report: everything that has a reason, and nothing that has none."""

from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from errata.processors.progress.antichain import Antichain, MutableAntichain
from errata.processors.progress.operate import Interest, Progress, ProgressError, validate
from errata.processors.progress.summary import Advance
from errata.processors.progress.timestamp import Epoch
from tests.processors.progress.nested import World
from tests.processors.progress.times import LOWEST, later, summaries, times_of

Paths = list[dict[int, Antichain[Any]]]
counts = st.integers(-2, 2)


def judge(report: Progress[Any], paths: Paths, held: list[Any]) -> bool:
    """Whether a report passes."""
    frontiers: list[MutableAntichain[Any]] = [MutableAntichain() for _ in held]
    for frontier, times in zip(frontiers, held, strict=True):
        frontier.update_iter((time, 1) for time in times)
    try:
        validate("x", report, connectivity=paths, held=lambda port: frontiers[port])
    except ProgressError:
        return False
    return True


@pytest.mark.parametrize("depth", [0, 1])
@given(data=st.data())
def test_a_report_passes_exactly_if_each_new_time_has_a_reason(
    depth: int, data: st.DataObject
) -> None:
    times = times_of(depth)
    paths: Paths = [
        {
            port: Antichain(data.draw(st.lists(summaries(depth), min_size=1, max_size=2)))
            for port in data.draw(st.sets(st.integers(0, 1)))
        }
        for _ in range(2)
    ]
    held = [data.draw(st.lists(times, max_size=2)) for _ in range(2)]
    report: Progress[Any] = Progress(2, 2)
    for batch in (*report.consumeds, *report.internals, *report.produceds):
        for time, diff in data.draw(st.lists(st.tuples(times, counts), max_size=2)):
            batch.update(time, diff)
    reasons = [set(times) for times in held]
    for batch, ends in zip(report.consumeds, paths, strict=True):
        for time, diff in batch:
            for port, chain in ends.items():
                reasons[port] |= {path.results_in(time) for path in chain if diff > 0} - {None}
    new = [
        (port, time)
        for batches in (report.internals, report.produceds)
        for port, batch in enumerate(batches)
        for time, diff in batch
        if diff > 0
    ]
    legal = all(any(reason.less_equal(time) for reason in reasons[port]) for port, time in new)
    assert judge(report, paths, held) == legal


@given(seed=st.integers(0, 10**9))
def test_one_report_without_a_reason_is_refused_among_those_that_have_one(seed: int) -> None:
    """Scopes within scopes, whose reports pass; then an operator makes up a time."""
    rng = Random(seed)
    world = World(rng, interest=Interest.ALWAYS, check=0)
    for _ in range(rng.randint(1, 8)):
        world.round()
    world.settle()
    liar = rng.choice(world.leaves)
    port, lie = rng.randrange(liar.outputs), later(rng, LOWEST[liar.group.depth])
    assume(not any(time.less_equal(lie) for time in liar.held[port]))
    world.mode, runs = "quiet", liar.runs
    rng.choice([liar.progress.internals, liar.progress.produceds])[port].update(lie, 1)
    world.activate(liar)
    caught = None
    try:
        world.scope.schedule()
    except ProgressError as error:
        caught = error.operator, error.port, error.time
    if caught or liar.runs > runs:  # else it had been let go before
        assert caught == (liar.name, port, lie)


def test_the_message_names_operator_output_time_and_what_would_support_it() -> None:
    report: Progress[Epoch] = Progress(1, 1)
    report.internals[0].update(Epoch(4), 1)
    held: MutableAntichain[Epoch] = MutableAntichain()
    held.update_iter([(Epoch(5), 1)])
    with pytest.raises(ProgressError) as caught:
        validate("bars", report, connectivity=[{}], held=lambda _: held)
    assert str(caught.value) == (
        "operator 'bars' reports that it holds a new capability at 4 on output 0, which nothing "
        "supports: it has consumed no message that leads to this output at 4 or before, and holds "
        "only capabilities at [5] at it; report consumed messages together with their effects, "
        "and drop a capability only after its last use"
    )
    assert (caught.value.operator, caught.value.port, caught.value.time) == ("bars", 0, 4)


def test_a_message_supports_only_outputs_that_it_leads_to_and_not_before_the_paths_result() -> None:
    paths: Paths = [{0: Antichain([Advance(2)])}]
    for port, time, passes in [(0, 5, True), (0, 4, False), (1, 9, False)]:
        report: Progress[Any] = Progress(1, 2)
        report.consumeds[0].update(Epoch(3), 1)
        report.produceds[port].update(Epoch(time), 1)
        assert judge(report, paths, [[], []]) == passes


def test_a_capability_may_be_used_and_dropped_in_one_report() -> None:
    report: Progress[Any] = Progress(0, 1)
    report.internals[0].update(Epoch(3), -1)
    report.produceds[0].update(Epoch(4), 2)
    assert judge(report, [], [[Epoch(3)]])
    assert not judge(report, [], [[]])
