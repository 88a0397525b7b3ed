"""How old a tuple may be that a revision still needs, and as of which watermarks."""

from dataclasses import replace

import pytest

from errata import Network, sliding, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.reports.progress_view import View
from errata.processors.tasks.expiry import expired_before
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import FOREVER, IDLE, NEVER, Report
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

HOUR = 3_600_000
NOW = 10**13
FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long"}


def source(net: Network, name: str, keep="3h"):
    return net.source(
        name, fields=FIELDS, identity=["key"], event_time="at", keep=keep, partition_by=["key"]
    )


def reach(net: Network) -> dict[str, int]:
    plan = compile_network(net)
    return plan.placed(dict.fromkeys(plan.topology.sources, 1)).reach_ms


def test_it_is_keep_and_the_windows_of_the_boxes_that_replay_an_arc():
    net = Network("n")
    trades = source(net, "trades")
    trades.aggregate("sums", by=["key"], window=tumbling("2h"), biggest="max(price)", keep="3h")
    assert reach(net) == {"trades": 5 * HOUR, "sums": 3 * HOUR}


@pytest.mark.parametrize(
    "add",
    [
        lambda net, s: s.aggregate(
            "all", by=["key"], window=None, emit="on_update", n="max(price)"
        ),
        lambda net, s: s.distinct("seen", by=["key"], keep="1h"),
        lambda net, s: net.join(
            "pairs", {"s": s, "n": source(net, "names")}, on=["key"], keep="3h", p="s.price"
        ),
    ],
    ids=["whole history", "distinct", "join"],
)
def test_without_a_bound_in_event_time_nothing_expires(add):
    net = Network("n")
    add(net, source(net, "trades"))
    assert reach(net) == {}


def test_a_slower_source_that_meets_an_arc_counts_with_its_watermark_and_its_keep():
    net = Network("n")
    both = net.union("both", source(net, "fast"), source(net, "slow", keep="5h"))
    both.aggregate("last", by=["key"], window=sliding("2h"), price="max(price)")
    source(net, "apart", keep="4h").where("some", "price > 1")
    assert reach(net) == {"fast": 7 * HOUR, "slow": 7 * HOUR, "apart": 4 * HOUR}
    plan = compile_network(net)
    plan = plan.placed(dict.fromkeys(plan.topology.sources, 1))
    cluster = MemoryCluster()
    for topic in ("n.progress", "n.plan"):
        cluster.create(topic, 1)
    view = View(cluster, plan=plan)
    shared = Shared(cluster, plan, SchemaRegistry(cluster), view, 2**60)

    def tell(name: str, done: int, *pairs: tuple[int, int], watermark=0, believed=None) -> None:
        task = f"ingest.{name}.0"
        view.reports[task] = replace(
            Report(task),
            done=done,
            watermarks=pairs,
            watermark=watermark or pairs[-1][1],
            believed=believed,
        )

    def before(arc: str, upto: int = 9, now_ms: int = NOW) -> int:
        return expired_before(shared, arc, upto=upto, now_ms=now_ms)

    tell("fast", 9, (1, 100 * HOUR), (5, 200 * HOUR))
    assert before("fast") == NEVER  # nothing is known of the slow one
    tell("slow", 9, (1, 10 * HOUR), (7, 20 * HOUR))
    assert before("fast") == before("slow") == 13 * HOUR
    assert before("fast", upto=6) == 3 * HOUR
    assert before("fast", upto=0) == NEVER
    assert before("fast", now_ms=15 * HOUR) == 8 * HOUR  # a watermark ahead of the clock
    tell("slow", 9, (1, 10 * HOUR), (7, IDLE), watermark=10 * HOUR)
    assert before("fast") == 3 * HOUR
    tell("slow", 12, (1, 10 * HOUR), (7, FOREVER), watermark=30 * HOUR)
    assert before("fast") == NEVER  # records after the end may have moved it
    assert before("fast", upto=12) == 23 * HOUR
    tell("apart", 9, (1, 50 * HOUR))
    assert before("apart") == 46 * HOUR
    tell("apart", 9, (1, 50 * HOUR), (8, NOW - HOUR), believed=50 * HOUR)
    assert before("apart") == 46 * HOUR  # it has run ahead, and may be put back
