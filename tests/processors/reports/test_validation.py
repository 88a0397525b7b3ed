"""Nobody goes by a lie, and all goes on after it: over tasks in memory, an exchange between them.

What lies there: two ingest tasks, which write to all three partitions of an exchange, and owners.
"""

import pytest

from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import FOREVER, Report
from errata.topics.cluster import MovingLeaderError, TopicPartition
from tests.processors.ingest.test_owner_task import World, insert, replace, row, running
from tests.processors.rogue import Rogue

LIAR = "ingest.trades.0"


def exchange(partition: int) -> TopicPartition:
    return TopicPartition("tape.trades.exchange", partition)


def claim(world: World, rogue: Rogue, partition: int, *, more: int) -> Report:
    """Claim records in one partition that are not there, and to be far on, and at the end."""
    end = world.cluster.end(exchange(partition)) + more
    last = rogue.honest(LIAR)
    return rogue.lie(
        LIAR,
        later=1_000,
        ends={**last.ends, exchange(partition): (end, last.done + 1_000)},
        watermark=FOREVER,
        watermarks=((last.done, FOREVER),),
    )


@pytest.mark.parametrize("partition", range(3))
@pytest.mark.parametrize("more", [1, 500])
def test_after_a_claim_of_records_that_are_not_there_every_record_counts_once(partition, more):
    with running() as world:
        rogue = Rogue(world.cluster, world.plan)
        world.send(0, *(insert(key) for key in "abcdef"))
        world.close_epoch()
        for price in (2, 3, 4):
            before = world.view.of(LIAR), world.view.watermark("trades-owner.0", upto=2**40)
            told = claim(world, rogue, partition, more=more)
            world.view.poll()
            assert world.view.ignored[LIAR].report == told
            assert before == (
                world.view.of(LIAR),
                world.view.watermark("trades-owner.0", upto=2**40),
            )
            for number, key in enumerate("abcdef"):
                line = replace(row(key, price - 1), row(key, price))
                world.send(number % 2, line)
            world.close_epoch()
            assert world.view.ignored == {}
        assert world.revisions() == [
            *((1, "insert", key, None, 1) for key in "abcdef"),
            *((n, "replace", key, n - 1, n) for n in (2, 3, 4) for key in "abcdef"),
        ]
        assert world.letters() == []
        assert world.counted("read") == 24


def test_a_reader_waits_for_no_record_that_is_claimed_and_takes_those_that_come():
    with running() as world:
        rogue, codec = Rogue(world.cluster, world.plan), world.shared.codec("trades.exchange")
        reader = ArcInput(world.view, codec, 0, done=-1, resume=0)
        found = []
        for epoch in (1, 2, 3):
            world.send(0, *(insert(f"{epoch}{n}") for n in range(20)))
            world.close_epoch()
            claim(world, rogue, 0, more=5)
            world.view.poll()
            reader.poll()
            assert reader.frontier() == epoch
            found += reader.take(epoch)["epoch"].to_list()
            reader.drop(epoch)
        assert found == sorted(found)
        assert len(found) == world.cluster.end(exchange(0)) - 3  # marks of transactions' ends
        reader.close()


def test_a_lie_is_one_also_for_who_comes_when_others_have_written_as_far():
    with running() as world:
        rogue = Rogue(world.cluster, world.plan)
        world.send(0, *(insert(key) for key in "abcdef"))
        world.close_epoch()
        told = claim(world, rogue, 0, more=1)
        world.send(1, *(insert(f"{n}") for n in range(30)))
        world.close_epoch()
        assert told.ends[exchange(0)][0] <= world.cluster.end(exchange(0))
        late = View(world.cluster, plan=world.plan)
        late.catch_up()
        assert late.reports == world.view.reports
        assert late.of(LIAR).done == 2
        assert late.ignored == {}


def test_a_lie_that_is_read_together_with_what_follows_it_is_gainsaid_too():
    with running() as world:
        rogue = Rogue(world.cluster, world.plan)
        world.send(0, insert("a"))
        world.close_epoch()
        honest = rogue.honest(LIAR)
        claim(world, rogue, 0, more=1)
        rogue.lie(LIAR, ends=honest.ends)  # as if it had reported before it read that
        world.close_epoch()
        assert world.view.of(LIAR).attempt == honest.attempt + 1


def test_a_report_waits_while_nobody_knows_whether_its_records_are_there(monkeypatch):
    def without_leader(sources):
        raise MovingLeaderError(f"{sources} have no leader")

    with running() as world:
        view = View(world.cluster, plan=world.plan)
        end = world.cluster.end(view.source)
        world.send(0, insert("a"))
        world.close_epoch()
        with monkeypatch.context() as patch:
            patch.setattr(view.validator, "_read_ends", without_leader)
            view.poll()
            assert view.reports == {}
            assert not view.has_read_to(end)
            with pytest.raises(MovingLeaderError):
                view.catch_up(limit_s=0.1)
        leaders = iter([without_leader, without_leader])
        ends = view.validator._read_ends
        monkeypatch.setattr(view.validator, "_read_ends", lambda s: next(leaders, ends)(s))
        view.catch_up()
        assert view.has_read_to(end)
        assert view.reports == world.view.reports


@pytest.mark.parametrize("number", [2**61, 2**62, 2**63 - 1])
@pytest.mark.parametrize("name", ["attempt", "done"])
def test_a_number_that_no_task_can_have_counted_to_is_a_lie_and_ends_no_task(name, number):
    """From the largest long no task could count on."""
    with running() as world:
        rogue = Rogue(world.cluster, world.plan)
        world.send(0, insert("a"))
        world.close_epoch()
        told = {"later": number - rogue.honest(LIAR).done} if name == "done" else {name: number}
        rogue.lie(LIAR, **told)
        rogue.lie(LIAR, resume={exchange(0): 5}, **told)  # false in another way too
        world.view.poll()
        what = "epoch" if name == "done" else name
        assert world.view.ignored[LIAR].reason.endswith("which its task does not read") or (
            f"its {what} {number} is none" in world.view.ignored[LIAR].reason
        )
        world.end(LIAR)
        world.start(LIAR)
        for n, key in enumerate("bcd"):
            world.send(n % 2, insert(key))
            world.close_epoch()
        assert world.view.ignored == {}
        assert [epoch for epoch, *_ in world.revisions()] == [1, 2, 3, 4]


def test_an_idle_task_gainsays_what_is_told_in_its_name_once():
    with running() as world:
        rogue = Rogue(world.cluster, world.plan)
        world.send(0, insert("a"))
        world.close_epoch()
        for name in world.tasks:
            honest = world.view.of(name)
            rogue.lie(name, later=-2)
            world.close_epoch()
            assert world.view.ignored == {}
            assert world.view.of(name).attempt == honest.attempt + 1
            end = world.cluster.end(world.view.source)
            for life in world.lives.values():
                assert not next(life)
            assert world.cluster.end(world.view.source) == end
