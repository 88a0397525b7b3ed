"""Money moves between accounts, over a real broker and four processes' worth of tasks.

From "Internal consistency in streaming systems": what an account paid and what it was paid meet in
a join, and all balances add up to nothing, after every epoch, whatever is revised meanwhile: as the
topics hold it, as `errata.read` gives it, and as `errata tail --complete` tells it.
"""

import json
import time
from collections import defaultdict
from contextlib import ExitStack

import pytest

import errata
from errata import Network, Stream
from errata.run.worker import Worker
from errata.schemas import revisions as frames
from errata.schemas.arc import visible
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.kafka.following import following
from tests.spark_jobs.at_work import LIMIT_S, Fed, at_work

ACCOUNTS, MOVES, READS = 12, 250, 4
TAIL = ("tail", "balances", "--complete", "--json", "--from-beginning")
FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "payer": "int",
    "payee": "int",
    "amount": "long",
}


def network(topic):
    net = Network("money")
    moves = net.source(
        "trades",
        topic=topic,
        format="json",
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        partition_by=["key"],
        keep="1d",
    )
    sides = {}
    for name, who in (("paid", "payer"), ("got", "payee")):
        owned = moves.map(f"{name}_by", account=who, scope=f"by_{who}")
        sides[name] = owned.aggregate(
            name, by=["account"], window=None, emit="on_update", keep="1d", sum="sum(amount)"
        )
    balances = net.join("balances", sides, on=["account"], balance="got.sum - paid.sum", keep="1d")
    balances.aggregate("all", window=None, emit="on_update", total="sum(balance)", keep="1d")
    return net


class Moving(Fed):
    """Moves between accounts, corrected and cancelled; `begin` has each account on both sides."""

    def begin(self):
        self.first_payers = iter(range(ACCOUNTS))
        for _ in range(ACCOUNTS):
            self.send(1, 0)
            self.live.clear()  # it stays: an account without any move on a side has no balance

    def drawn(self):
        payer = next(self.first_payers, None)
        if payer is None:
            payer, payee = self.chance.sample(range(ACCOUNTS), 2)
        else:
            payee = (payer + 1) % ACCOUNTS
        return {"payer": payer, "payee": payee, "amount": self.chance.randrange(1, 100)}


class Told:
    """What `errata tail` of the balances has written by now, as it follows a network at work."""

    def __init__(self, file):
        self.file = file

    def totals(self, *, upto):
        """Wait until an epoch is over; return the total after each one."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            held, found = {}, {}
            for line in map(json.loads, self.file.read_text().split("\n")[:-1]):
                if "complete" in line:
                    found[line["epoch"]] = sum(held.values())
                elif line["op"] == "delete":
                    del held[line["before"]["account"]]
                else:
                    held[line["after"]["account"]] = line["after"]["balance"]
            if max(found, default=-1) >= upto:
                return found
            time.sleep(0.05)
        raise AssertionError(f"epoch {upto} is not told, only {sorted(found)[-3:]}")


@pytest.mark.kafka
def test_all_balances_add_up_to_nothing_after_every_epoch(broker, tmp_path):
    topic = "money.in"
    create_topics(broker.settings, [TopicSpec(topic, 2)])
    cluster = KafkaCluster(broker.settings)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        workers = [Worker(network(topic), Place(broker.settings, tmp_path / n)) for n in "abcd"]
        plan = workers[0].plan
        for number, scope in enumerate(("ingest.trades", *plan.topology.scopes)):
            workers[number % 4].add_scope(scope, sweep_beside=True)
        for worker in workers:
            stack.enter_context(at_work(worker))
        file = f"from tests.kafka.test_money import network\nnet = network({topic!r})\n"
        told = Told(stack.enter_context(following(tmp_path, broker, net=file, command=TAIL)))
        net, settings = network(topic), {"kafka.bootstrap.servers": broker.bootstrap_servers}

        def total_as_of(epoch):
            found = errata.read(Stream(net, "balances"), epoch, settings=settings)
            assert found.epoch == epoch
            return sum(row["balance"] for row in found.tuples)

        moving = Moving(cluster, topic=topic, kinds=10)
        moving.begin()
        first = moving.processed(plan, plan.topology.scopes)
        under_load = {}
        while len(under_load) < READS:  # two reads may show one epoch
            moving.send(MOVES, 0)
            moving.processed(plan, [])  # taken in: those below may be behind
            now = errata.read(Stream(net, "all"), settings=settings)
            total = sum(row["total"] for row in now.tuples)
            under_load[now.epoch] = total, total_as_of(now.epoch)
        moving.processed(plan, plan.topology.scopes)
        balances = moving.believed(plan, "balances")
        (total, *others) = (found for found in moving.believed(plan, "all") if found.height)
        seen = [visible(plan.topology.arcs["balances"], found)["epoch"] for found in balances]
        epochs = {epoch for found in seen for epoch in found.to_list() if epoch >= first}
        assert len(epochs) > 3
        assert {e: total_as_of(e) for e in epochs} == dict.fromkeys(epochs, 0)
        by_tail = told.totals(upto=max(epochs))
    assert all(total == summed for total, summed in under_load.values())
    # A reader that comes when a task has just been given work may be shown an epoch long before:
    # one in which some accounts were on one side only.
    assert {e: found for e, found in under_load.items() if e >= first and any(found)} == {}
    assert {e: total for e, total in by_tail.items() if e >= first} == dict.fromkeys(epochs, 0)
    assert not others
    assert {t for t, e in total.select("after.total", "epoch").rows() if e >= first} <= {0}
    by_epoch = defaultdict(int)
    for found in balances:
        for op, epoch, before, after in found.select(
            "op", "epoch", "before.balance", "after.balance"
        ).rows():
            by_epoch[epoch] += (after or 0) - (before or 0)
            assert op != frames.DELETE or epoch <= first
    running = 0
    for epoch, change in sorted(by_epoch.items()):
        running += change
        assert running == 0 or epoch < first, epoch
