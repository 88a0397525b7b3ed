"""The same feeds over a real broker, four partitions, a process for each mode."""

import zlib
from time import monotonic, sleep

import polars as pl
import pytest

from errata.client import rows
from errata.client.json_lines import json_line
from errata.demo.run import environment
from errata.deploy.deployment import prepare
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.plan.deployed import declare_end
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import FOREVER
from errata.run.supervisor import Supervisor, network_commands
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec
from tests.feeds.feeds import FEEDS, ON_SPARK
from tests.feeds.test_feeds import NAMES, in_order

PARTITIONS, LIMIT_S = 4, 300.0
SPARK_OPTIONS = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")


def content(shared, arc):
    """Return an arc's content as a reader that goes by reports folds it."""
    found = []
    for partition in range(PARTITIONS):
        source = ArcInput(shared.view, shared.codec(arc), partition, done=-1, resume=0)
        _, end = shared.view.complete(arc, partition)
        while source.cursor.position < end:
            source.poll()
        source.frontier()
        found.append(rows.fold(shared.plan.topology.arcs[arc], source.take(source.frontier())))
        source.close()
    return rows.tuples(shared.plan.topology.arcs[arc], pl.concat(found))


def run(name, network, reference, broker, folder):
    """Put a feed through its network, and return what the arcs hold, the truth, and counts."""
    feed = FEEDS[name]
    if not feed.file.exists():
        pytest.skip(f"{feed.file.name} is not there")
    topic, ways = network.name, [arc for arc in network.declarations if arc != name]
    create_topics(broker.settings, [TopicSpec(topic, PARTITIONS)])
    cluster = KafkaCluster(broker.settings)
    plan = prepare(network, Place(broker.settings, folder), cluster)
    commands = network_commands(reference, plan, spark=SPARK_OPTIONS)
    environ = environment(broker.bootstrap_servers, state=folder)
    view = View(cluster, plan=plan)
    tasks = [f"{arc}.{partition}" for arc in ways for partition in range(PARTITIONS)]
    with Supervisor(commands, environ=environ, say=print) as supervisor:
        supervisor.start()
        for line in feed.lines():
            key = (line.get("after") or line["before"])["key"].encode()
            place = zlib.crc32(key) % PARTITIONS
            cluster.send(topic, partition=place, key=key, value=json_line(line))
        cluster.flush()
        declare_end(cluster, plan, name)
        deadline = monotonic() + LIMIT_S
        while any(view.of(task).watermark < FOREVER for task in tasks):
            supervisor.poll()
            view.poll()
            assert monotonic() < deadline, {task: view.of(task).done for task in tasks}
            sleep(0.05)
    shared = Shared(cluster, plan, SchemaRegistry(cluster), view, 0)
    identity = plan.topology.arcs["up"].identity
    tables = {arc: in_order(content(shared, arc), identity) for arc in ways}
    cluster.close()
    read = [view.of(f"ingest.{name}.{p}").counts for p in range(PARTITIONS)]
    assert sum(counts.get("read", 0) for counts in read) == feed.count
    assert sum(counts.get("dead_letters", 0) for counts in read) == 0
    assert tables["up"] == in_order(feed.truth(feed.left()), identity)
    return tables


@pytest.mark.kafka
@pytest.mark.parametrize("name", NAMES)
def test_a_feed_over_kafka_in_every_mode_leaves_what_a_recomputation_gives(name, broker, tmp_path):
    network = FEEDS[name].network()
    tables = run(name, network, f"tests.feeds.feeds:{name}_network", broker, tmp_path)
    assert tables["down"] == tables["res"] == tables["up"]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_a_feed_wholly_on_spark_leaves_what_a_recomputation_gives(name, broker, tmp_path):
    network = FEEDS[name].network(ON_SPARK, where="_on_spark", place="spark")
    tables = run(name, network, f"tests.feeds.feeds:{name}_on_spark", broker, tmp_path)
    assert tables["spark"] == tables["up"]
