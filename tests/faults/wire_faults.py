"""Faults of the wire: what happens to requests and responses between clients and a broker."""

from collections.abc import Callable
from functools import partial
from random import Random
from time import monotonic

from tests.faults.clusters import Cluster
from tests.faults.proxy import Action, Rule
from tests.faults.running import Running

Fault = Callable[[Running, Cluster, Random], str | None]

OF_TRANSACTIONS = (
    "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn",
)  # fmt: skip
APIS = (*OF_TRANSACTIONS, "EndTxn", "EndTxn", "Produce", "Produce", "Fetch")
LATE_S = (0.2, 1.0, 3.0, 12.0)
LIMIT_S, ISOLATED_S = 12.0, (1.0, 6.0, 16.0)


def harm(action: Action, on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Let something happen to some requests of one kind."""
    proxy = cluster.proxy
    assert proxy is not None
    where = chance.choice(("before", "after"))
    hold_s = 0.0
    if action == "hold" or (action == "repeat" and where == "after" and chance.random() < 0.5):
        hold_s = chance.choice(LATE_S)
    rule = Rule(
        chance.choice(APIS), action, where, count=chance.choice((1, 1, 3, 8)), hold_s=hold_s,
        probability=chance.choice((1.0, 0.3)),
    )  # fmt: skip
    before, deadline = proxy.counts[rule.api, action, where], monotonic() + LIMIT_S
    proxy.plan(rule)

    def done() -> int:
        return proxy.counts[rule.api, action, where] - before

    on.until(lambda: done() == rule.count or monotonic() > deadline, limit_s=60.0, what="wait")
    proxy.clear()
    late = f" for {hold_s:g} s" * bool(hold_s)
    return f"{action} {where} {rule.api}{late}: {done()}" if done() else None


def isolate(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Cut connections and accept no new ones, of all clients or of about half of them."""
    proxy = cluster.proxy
    assert proxy is not None
    seconds, everyone = chance.choice(ISOLATED_S), chance.random() < 0.3
    proxy.isolate(lambda port: everyone or bool(port // 2 % 2))
    on.pause(seconds)
    proxy.rejoin()
    return f"{'all' if everyone else 'some'} connections were cut for {seconds:g} s"


WIRE_FAULTS: dict[str, Fault] = {
    "wire-hold": partial(harm, "hold"),
    "wire-drop": partial(harm, "drop"),
    "wire-repeat": partial(harm, "repeat"),
    "wire-error": partial(harm, "error"),
    "wire-cut": partial(harm, "cut"),
    "wire-isolate": isolate,
}
