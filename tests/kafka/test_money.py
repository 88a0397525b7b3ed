"""Money moves between accounts, over a real broker and four processes' worth of tasks.

From "Internal consistency in streaming systems": what an account paid and what it was paid meet in
a join, and all balances add up to nothing, after every epoch, whatever is revised meanwhile.
"""

from collections import defaultdict
from contextlib import ExitStack

import pytest

from errata import Network
from errata.worker import Place, Worker
from schemas import revisions as frames
from tests.spark_jobs.at_work import Fed, at_work
from topics.create import create_topics
from topics.kafka import KafkaCluster
from topics.settings import TopicSpec

ACCOUNTS, MOVES = 12, 1_500
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


@pytest.mark.kafka
def test_all_balances_add_up_to_nothing_after_every_epoch(broker, tmp_path):
    topic = "money.in"
    create_topics(broker.settings, [TopicSpec(topic, 2)])
    cluster = KafkaCluster(broker.settings)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        workers = [Worker(network(topic), Place(broker.settings, tmp_path / n)) for n in "abcd"]
        plan = workers[0].plan
        for number, scope in enumerate(("ingest.trades", *plan.scopes)):
            workers[number % 4].add_scope(scope, sweep_beside=True)
        for worker in workers:
            stack.enter_context(at_work(worker))
        moving = Moving(cluster, topic=topic, kinds=10)
        moving.begin()
        first = moving.processed(plan, plan.scopes)
        for _ in range(15):
            moving.send(MOVES // 15, 0)
            moving.processed(plan, [])  # taken in: those below may be behind
        moving.processed(plan, plan.scopes)
        balances = moving.believed(plan, "balances")
        (total, *others) = (found for found in moving.believed(plan, "all") if found.height)
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
    assert len([epoch for epoch in by_epoch if epoch > first]) > 3
