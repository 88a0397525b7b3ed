"""Chains over a real broker: what each link leads to, while links come, change and go."""

from contextlib import ExitStack

import polars as pl
import pytest

from errata import Network
from errata.run.worker import Worker
from errata.schemas import revisions as frames
from errata.settings.place import Place
from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.spark_jobs.at_work import Fed, at_work

LINKS = 120
FIELDS = {"key": "string", "at": "timestamp-millis", "next": "string"}
FOLLOWED = "coalesce(links.next, next)"


def network(topic):
    net = Network("chains")
    links = net.source(
        "trades", topic=topic, format="json", fields=FIELDS, identity=["key"], event_time="at",
        partition_by=["key"], keep="1d",
    )  # fmt: skip
    last = net.iterate(
        "last",
        links,
        lambda x: x.lookup("further", links, on={"next": "key"}, alias="links", next=FOLLOWED),
        rounds=LINKS,
        keep="1d",
    )
    links.lookup("ends", last, on=["key"], how="inner", fields={"end": "last.next"}, keep="1d")
    return net


class Linked(Fed):
    """Each link leads to any that there may be, or to none: there are circles, too."""

    def drawn(self):
        return {"next": str(self.chance.randrange(LINKS))}


def end(live, key):
    """Return what a link leads to in the end; None on a circle, but for one of a link alone."""
    seen = {key}
    while (key := live[key]["next"]) in live and key not in seen:
        seen.add(key)
    return key if key not in live or live[key]["next"] == key else None


@pytest.mark.kafka
def test_each_link_leads_where_its_chain_ends(broker, tmp_path):
    topic = "chains.in"
    create_topics(broker.settings, [TopicSpec(topic, 2)])
    cluster = KafkaCluster(broker.settings)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        worker = Worker(network(topic), Place(broker.settings, tmp_path))
        for scope in ("ingest.trades", *worker.plan.topology.scopes):
            worker.add_scope(scope, sweep_beside=True)
        stack.enter_context(at_work(worker))
        linked = Linked(cluster, topic=topic, kinds=10)
        for _ in range(4):
            linked.send(LINKS // 4, 0)
            linked.processed(worker.plan, worker.plan.topology.scopes)
        found = pl.concat(linked.believed(worker.plan, "ends"))
    told = frames.fold(found, ["key"], ["key", "end"]).rows()
    wanted = {key: end(linked.live, key) for key in linked.live}
    assert dict(told) == {key: last for key, last in wanted.items() if last is not None}
    assert len(told) < len(wanted)
    assert any(linked.live[key]["next"] != last for key, last in told)
