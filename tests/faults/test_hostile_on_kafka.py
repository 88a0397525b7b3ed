"""Hostile records in every topic of a network at work on a broker, honest ones in between."""

import random
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from errata import Network, tumbling
from errata.client.dead_letters import committed
from errata.processors.reports.progress_view import View
from errata.run.worker import Worker
from errata.schemas import revisions as frames
from errata.settings.place import Place
from errata.topics import names
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.settings import TopicSpec
from tests.faults.hostile_records import FIELDS, Source
from tests.faults.hostile_values import any_bytes
from tests.faults.judges import BadRecordError, judge_of
from tests.spark_jobs.at_work import LIMIT_S, Fed, at_work

pytestmark = pytest.mark.kafka

NETWORK, TOPIC, ROUNDS, WINDOW_MS = "beset", "beset.in", 6, 600_000
HEADERS = [None, [], [("", b"")], [("a" * 500, None)], [("x", b"\0\xff" * 200)] * 30, [("x", "y")]]
TIMES_MS = [0, 1, 10**12, 10**15, 2**62]


def network() -> Network:
    net = Network(NETWORK)
    trades = net.source(
        "trades",
        topic=TOPIC,
        format="json",
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        keep="30d",
    )
    trades.aggregate(
        "sums", by=["ok"], window=tumbling(WINDOW_MS), keep="30d", scope="sums",
        n="count(*)", total="sum(price)",
    )  # fmt: skip
    return net


class Beset(Fed):
    """A network whose topics get honest and hostile records."""

    def __init__(self, cluster: KafkaCluster, producer: Producer) -> None:
        super().__init__(cluster, topic=TOPIC, kinds=10)
        self.dice, self.producer = random.Random(11), producer
        self.source, self.judge = Source("json", "native", self.dice), judge_of("json", "native")
        self.bad = Counter[tuple[bytes | None, bytes | None]]()
        self.refused: list[str] = []

    def feed(self, count: int) -> None:
        """Send records to the source's topic; the hostile ones are those that no reader accepts."""
        while count:
            sent = self.source.honest() if self.dice.random() < 0.4 else self.source.hostile()
            if not sent.is_honest:
                if max(len(sent.value or b""), len(sent.key or b"")) > 500_000:
                    continue
                try:
                    self.judge.meaning(sent.value or b"")
                    continue
                except BadRecordError:
                    self.bad[sent.key, sent.value] += 1
            key = sent.key or b""
            self.producer.produce(
                TOPIC,
                key=sent.key,
                value=sent.value,
                partition=sum(key) % 2,
                timestamp=self.dice.choice(TIMES_MS),
                headers=self.dice.choice(HEADERS),
                on_delivery=lambda error, _: self.refused.append(str(error)) if error else None,
            )
            self.sent += 1
            count -= 1
        self.producer.flush()
        assert self.refused == []

    def beset(self, topic: str, partitions: int) -> None:
        """Send to an internal topic what can't be read: bytes, and real records that are cut."""
        for partition in range(partitions):
            place, found = TopicPartition(topic, partition), list[tuple[bytes | None, bytes]]()
            reader = self.cluster.reader({place: 0})
            end, until_s = self.cluster.end(place), time.monotonic() + LIMIT_S
            while reader.position(place) < end and time.monotonic() < until_s:
                for records in reader.poll(timeout_s=0.1):
                    pairs = zip(records.keys, records.values, strict=True)
                    found += [(key, value) for key, value in pairs if value]
            reader.close()
            for _ in range(40):
                key, value = self.dice.choice(found) if found else (b"key", b"")
                cut = value[: self.dice.randrange(len(value))] if value else b""
                if topic == SCHEMAS_TOPIC or topic.endswith(".plan"):
                    key = self.dice.choice([key, b"other", None, b"\xff"])
                sent = self.dice.choice([cut, cut, any_bytes(self.dice)])
                self.producer.produce(topic, key=key, value=sent, partition=partition)
        self.producer.flush()


def test_hostile_records_in_every_topic_end_no_process_and_spoil_nothing(broker, tmp_path):
    any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    create_topics(broker.settings, [TopicSpec(TOPIC, 2, any_time)])
    cluster = KafkaCluster(broker.settings)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        workers = []
        for number, scope in enumerate(("ingest.trades", "sums")):
            worker = Worker(network(), Place(broker.settings, tmp_path / str(number)))
            worker.add_scope(scope)
            workers.append(stack.enter_context(at_work(worker)))
        worker = Worker(network(), Place(broker.settings, tmp_path / "sweep"))
        worker.add_sweepers()
        stack.enter_context(at_work(worker))
        plan = worker.plan
        beset = Beset(cluster, Producer({**broker.settings, "message.max.bytes": 2_000_000}))
        internal = {
            names.progress_topic(NETWORK): 1,
            names.plan_topic(NETWORK): 1,
            names.dead_letters_topic(NETWORK): 1,
            SCHEMAS_TOPIC: 1,
            **{
                plan.deployment.topic(arc): plan.placement.partitions[arc]
                for arc in plan.topology.topics
            },
            **{
                plan.deployment.requests(a): plan.placement.partitions[a]
                for a in plan.replayed_points()
            },
            **{plan.deployment.replies(s): 2 for s in plan.topology.scopes.values()},
        }
        for _ in range(ROUNDS):
            beset.feed(150)
            for topic, partitions in internal.items():
                beset.beset(topic, partitions)
            beset.processed(plan, plan.topology.scopes)
        letters = Counter((x.key, x.value) for x in committed(cluster, plan))
        assert letters == beset.bad
        content = {}
        for part in beset.believed(plan, "trades"):
            kind = plan.topology.arcs["trades"]
            folded = frames.fold(part, kind.identity, list(kind.fields))
            content |= {row["key"]: row for row in folded.iter_rows(named=True)}
        wanted = beset.source.live
        assert content.keys() == wanted.keys()
        for key, row in wanted.items():
            assert {name: content[key][name] for name in ("at", "price", "n", "note", "raw")} == {
                name: row[name] for name in ("at", "price", "n", "note", "raw")
            }
        view = View(cluster, plan=plan)
        view.catch_up()
        assert (
            sum(view.of(task).counts["read"] for task in view.tasks("ingest.trades")) == beset.sent
        )
        view.close()
