"""A network over a real registry: checked, deployed, and run by roles that can't write there."""

from decimal import Decimal

import pytest

from errata.processors.plan.deployed import require_plan
from errata.topics.admin import create_topics
from errata.topics.cluster import ClusterError
from errata.topics.settings import TopicSpec
from tests.registry.avro_producer import Orders, order
from tests.registry.read_only import ReadOnly

pytestmark = [pytest.mark.kafka, pytest.mark.registry]

NETWORK = """
from errata import Network, tumbling

net = Network("desks")
orders = net.source(
    "orders", topic="desks.in", envelope="upsert", format="avro", event_time="at", keep="1d"
)
sums = orders.where("real", "price > 0").aggregate(
    "sums", by=["desk"], window=tumbling("1m"), total="sum(price)", keep="1d", emit="on_update"
)
orders.sink("desks.now", envelope="upsert", format="avro")
sums.sink("desks.changes", envelope="debezium", format="avro")
"""


def is_there(cluster, topic: str) -> bool:
    try:
        return cluster.partitions(topic) > 0
    except ClusterError:
        return False


def test_a_network_is_checked_deployed_and_run_by_roles_that_can_not_register(
    on, apicurio, broker, cluster
):
    running, give = on(apicurio.url), apicurio.register
    running.declare(NETWORK)
    create_topics(broker.settings, [TopicSpec("desks.in", 2)])
    orders = Orders(broker.settings, "desks.in", give, partitions=2)
    schema = order()
    for number in range(20):
        content = {"at": number, "desk": "xy"[number % 2], "price": Decimal(number)}
        orders.send(schema, f"k{number}", content)
    orders.send(schema, "k0", None)

    found = running.lines("schemas", "check", "net.py")
    kinds = {line["subject"]: line["kind"] for line in found}
    assert set(kinds.values()) == {"new"}
    wanted = "orders-key orders-value sums-value now-key changes-value progress-value"
    assert {f"desks.{subject}" for subject in wanted.split()} <= set(kinds)

    # Somebody has another schema under the subject of a sink: nothing is made.
    give("desks.now-value", order(without="id"))
    before = sorted(apicurio.subjects())
    refused = running.errata("deploy", "net.py")
    assert refused.returncode == 1
    assert "desks.now-value (BACKWARD): " in refused.stderr
    assert "named 'Order', is" in refused.stderr
    checked = running.errata("schemas", "check", "net.py")
    assert checked.returncode == 1
    assert '"kind":"incompatible"' in checked.stdout.replace(" ", "")
    assert sorted(apicurio.subjects()) == before
    for topic in ("desks.plan", "desks.orders", "desks.progress", "desks.now"):
        assert not is_there(cluster, topic)
    also = running.errata("run", "net.py", "--scope", "ingest.orders")
    assert also.returncode == 1
    assert not is_there(cluster, "desks.plan")

    apicurio.ask("DELETE", "subjects/desks.now-value")
    assert running.lines("deploy", "net.py")[0]["version"] == 1
    assert {x["kind"] for x in running.lines("schemas", "check", "net.py")} == {"same"}

    with ReadOnly(apicurio.url) as guarded:
        scopes = ["ingest.orders", *require_plan(cluster, "desks").plan.topology.scopes]
        for scope in scopes:
            running.start(
                "run", "net.py", "--scope", scope, "--sweep-beside", SCHEMA_REGISTRY_URL=guarded.url
            )
        wanted = {"x": Decimal(sum(range(2, 20, 2))), "y": Decimal(sum(range(1, 20, 2)))}

        def right() -> bool:
            there = {row["desk"]: row["total"] for row in running.table("sums")}
            return there == wanted and len(running.table("orders")) == 19

        running.wait_for(right, "the totals")
        orders.producer.produce("desks.in", b"\0\0\0", b"no key either", partition=0)
        assert orders.producer.flush(30) == 0
        running.wait_for(lambda: len(running.lines("dead-letters", "net.py")) == 1, "a dead letter")
        assert guarded.refused == []
    for process in running.processes:
        process.terminate()
    assert [process.wait(30) for process in running.processes] == [0] * len(scopes)
