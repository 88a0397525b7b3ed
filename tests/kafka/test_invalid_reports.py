"""Invalid reports, on a broker: `errata status` names them, and every process ignores them.

A rogue writes them to the progress topic of a network at work. What the network makes of its input
stays what a full recompute gives: no window closes early, no record is waited for or passed over.
"""

import json
import time
from collections import defaultdict
from contextlib import ExitStack

import polars as pl
import pytest

import errata
from errata import Network, Stream, tumbling
from errata.processors.wire.report import FOREVER
from errata.run.worker import Worker
from errata.schemas import revisions as frames
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.settings import TopicSpec
from tests.kafka.following import following
from tests.processors.rogue import Rogue
from tests.spark_jobs.at_work import HOUR, LIMIT_S, Fed, at_work

pytestmark = pytest.mark.kafka

ROUNDS, TRADES, LARGE = 2, 60, 60
FIELDS = {"key": "string", "at": "timestamp-millis", "product": "string", "n": "long"}
INVALID = "its report is invalid: "


def network(topic):
    net = Network("liars")
    trades = net.source(
        "trades", topic=topic, format="json", fields=FIELDS, identity=["key"], event_time="at",
        keep="30d",
    )  # fmt: skip
    sums = trades.aggregate(
        "sums", by=["product"], window=tumbling("1h"), total="sum(n)", keep="30d", scope="sums"
    )
    sums.where("high", f"total > {LARGE}", scope="high", keep="30d")
    return net


class Traded(Fed):
    """Trades, and how far each partition's event time has come."""

    def __init__(self, cluster, *, topic):
        super().__init__(cluster, topic=topic, kinds=10)
        self.newest = {0: 0, 1: 0}

    def _line(self, key, hour, kind):
        line = super()._line(key, hour, kind)
        told = line.get("after") or line["before"]
        side = int(told["key"]) % 2
        self.newest[side] = max(self.newest[side], told["at"])
        return line

    def recomputed(self):
        """The sums of all windows that have closed, from the trades that are there."""
        totals, closed = defaultdict(int), min(self.newest.values()) // HOUR
        for trade in self.live.values():
            totals[trade["product"], trade["at"] // HOUR] += trade["n"]
        return {where: total for where, total in totals.items() if where[1] < closed}


class Watched:
    """What `errata status --watch` has written by now."""

    def __init__(self, file):
        self.file = file

    def complaints(self):
        (*_, last) = ["", *self.file.read_text().split("\n")[:-1]]
        told = json.loads(last)["complaints"] if last else []
        return {each["task"]: each["reason"] for each in told}

    def until(self, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition(self.complaints()):
            assert time.monotonic() < deadline, self.complaints()
            time.sleep(0.05)


def backwards(rogue, plan):
    rogue.lie("sums.0", later=-5)
    return "sums.0", "it goes back from epoch"


def of_no_task(rogue, plan):
    rogue.lie("sums.7", later=1_000, attempt=1)
    return "sums.7", "the plan has no task 'sums.7'"


def of_anothers_output(rogue, plan):
    place = TopicPartition(plan.deployment.topic("sums"), 0)
    rogue.lie("sums.1", later=1_000, ends={place: (1, 1)})
    return "sums.1", f"it names partition 0 of {place.topic}, which its task does not write"


def of_anothers_input(rogue, plan):
    place = TopicPartition(plan.deployment.topic("sums"), 1)
    rogue.lie("high.0", later=1_000, resume={place: 1})
    return "high.0", f"it names partition 1 of {place.topic}, which its task does not read"


def of_records_of_a_source(rogue, plan):
    """The others' partition is told of truly: who reads that waits for nothing."""
    place, last = (
        TopicPartition(plan.deployment.topic("trades"), 0),
        rogue.honest("ingest.trades.1"),
    )
    end = rogue.cluster.end(place) + 50
    rogue.lie(
        "ingest.trades.1",
        later=1_000,
        ends={**last.ends, place: (end, last.done + 1_000)},
        watermark=FOREVER,
        watermarks=((last.done, FOREVER),),
    )
    return "ingest.trades.1", f"it has written up to offset {end} of partition 0 of {place.topic}"


def of_records_of_a_box(rogue, plan):
    place, last = TopicPartition(plan.deployment.topic("sums"), 1), rogue.honest("sums.1")
    end = rogue.cluster.end(place) + 50
    rogue.lie("sums.1", later=1_000, ends={place: (end, last.done + 1_000)})
    return "sums.1", f"it has written up to offset {end} of partition 1 of {place.topic}"


LIES = (
    backwards,
    of_no_task,
    of_anothers_output,
    of_anothers_input,
    of_records_of_a_source,
    of_records_of_a_box,
)


def test_lies_are_named_and_change_nothing_and_neither_does_a_task_that_stands_still(
    broker, tmp_path
):
    topic = "liars.in"
    create_topics(broker.settings, [TopicSpec(topic, 2)])
    cluster = KafkaCluster(broker.settings)
    net, settings = network(topic), {"kafka.bootstrap.servers": broker.bootstrap_servers}
    with ExitStack() as stack:
        stack.callback(cluster.close)

        def started(scope):
            worker = Worker(network(topic), Place(broker.settings, tmp_path / scope))
            worker.add_scope(scope, sweep_beside=True)
            return worker

        first = started("ingest.trades")
        plan = first.plan
        for worker in (first, started("sums")):
            stack.enter_context(at_work(worker))
        rogue, traded = Rogue(cluster, plan), Traded(cluster, topic=topic)
        file = f"from tests.kafka.test_invalid_reports import network\nnet = network({topic!r})\n"
        command = ("status", "--watch", "--json")
        status = Watched(
            stack.enter_context(following(tmp_path, broker, net=file, command=command))
        )

        def hours(number):
            """Trades of the hours to come, and corrections of those past; all is processed."""
            traded.send(TRADES, 3 * number)
            traded.processed(plan, plan.topology.scopes)

        def held(arc):
            found = errata.read(Stream(net, arc), settings=settings).tuples
            return {(row["product"], row["window_start"] // HOUR): row["total"] for row in found}

        def stands_still(complaints):
            told = [reason for task, reason in complaints.items() if task.startswith("high.")]
            return any(reason.startswith("it has something to do and has n") for reason in told)

        for number in (0, 1):  # nobody runs `high` at first, and again after a while
            with ExitStack() as running:
                if number:
                    running.enter_context(at_work(started("high")))
                    status.until(lambda complaints: not stands_still(complaints))
                    hours(number)
                    assert held("sums") == traded.recomputed()
            traded.send(TRADES, 3 * number)
            status.until(stands_still)
        stack.enter_context(at_work(started("high")))
        for number, lie in enumerate(LIES, start=2):
            for _ in range(ROUNDS):
                task, reason = lie(rogue, plan)
                traded.send(TRADES, 3 * number)
                status.until(
                    lambda told, at=task, why=reason: told.get(at, "").startswith(INVALID + why)
                )
                traded.processed(plan, plan.topology.scopes)
                expected = traded.recomputed()
                assert held("sums") == expected
                assert held("high") == {at: n for at, n in expected.items() if n > LARGE}
        # The schemas are those of all tests on this broker, some of which spoil them.
        status.until(lambda complaints: complaints.keys() <= {SCHEMAS_TOPIC})
        for arc in ("sums", "high"):
            found = pl.concat(traded.believed(plan, arc))
            identity = plan.topology.arcs[arc].identity
            told = frames.identities(found, identity).with_columns(found["epoch"])
            assert not told.is_duplicated().any()
