"""A broker comes back without the last records of an arc: they are written again, and readers know.

The records were acknowledged and committed; then the disk is set back, as an unclean election does.
"""

import time
from contextlib import ExitStack, contextmanager
from struct import unpack_from
from threading import Event, Thread

import pytest

import errata
from errata import Stream
from errata.processors.tasks import lost_records
from errata.processors.tasks.lost_records import LostRecordsError
from errata.run.worker import Worker
from errata.schemas.errors import ErrataError
from errata.settings.place import Place
from errata.topics import transactions
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec
from tests.kafka.test_invalid_reports import LARGE, Traded, network
from tests.spark_jobs import at_work
from tests.spark_jobs.at_work import HOUR

pytestmark = pytest.mark.kafka

TOPIC, HEAD = "lossy.in", 12
PATIENCE_S = 200.0
SCOPES = "ingest.trades", "sums", "high"


def cut(broker, topic, *, share):
    """Remove the last batches of each partition of a topic, while the broker is down."""
    lost = 0
    data = broker.folder / "data"
    for folder in data.glob(f"{topic}-*"):
        segments = {log: batch_ends(log.read_bytes()) for log in sorted(folder.glob("*.log"))}
        left = int(sum(map(len, segments.values())) * (1 - share))
        for log, ends in segments.items():
            kept = [0, *ends][min(left, len(ends))]
            lost += [0, *ends][-1] - kept
            if left or log == min(segments):
                log.write_bytes(log.read_bytes()[:kept])
            else:
                log.unlink()
            left -= min(left, len(ends))
        for other in folder.iterdir():
            if other.suffix in {".index", ".timeindex", ".snapshot"}:
                other.unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).unlink(missing_ok=True)
    return lost


def batch_ends(content):
    """Return where each batch of a segment ends; it may be allocated further."""
    ends, at = [], 0
    while at + HEAD < len(content) and (size := unpack_from(">i", content, at + 8)[0]):
        at += HEAD + size
        ends.append(at)
    return ends


@contextmanager
def kept_at_work(start):
    """Run a worker in a thread, and another one whenever an error ends it, as a supervisor does."""
    stop = Event()

    def run():
        while not stop.is_set():
            try:
                start().run(stop.is_set)
            except ErrataError:
                time.sleep(0.2)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def worker_of(broker, folder, scope):
    """Return a worker of a scope that finds the files of the one before it."""
    worker = Worker(network(TOPIC), Place(broker.settings, folder / scope))
    worker.add_scope(scope, sweep_beside=True)
    return worker


@pytest.mark.parametrize(
    ("arc", "at_rest"),
    [
        pytest.param("trades", True, id="trades at rest"),
        pytest.param("sums", False, id="sums at work"),
        pytest.param("trades", False, id="trades at work", marks=pytest.mark.slow),
        pytest.param("sums", True, id="sums at rest", marks=pytest.mark.slow),
    ],
)
def test_what_a_broker_has_lost_is_written_again(tmp_path, monkeypatch, arc, at_rest):
    monkeypatch.setattr(lost_records, "CHECKED_S", 1.0)
    monkeypatch.setattr(at_work, "LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(transactions, "_end", lambda *_: None)  # this process runs the tests, too
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker())
        create_topics(broker.settings, [TopicSpec(TOPIC, 2)])
        cluster = KafkaCluster(broker.settings)
        stack.callback(cluster.close)
        net, settings = network(TOPIC), {"kafka.bootstrap.servers": broker.bootstrap_servers}
        traded = Traded(cluster, topic=TOPIC)

        def start(scope):
            return worker_of(broker, tmp_path, scope)

        def all_at_work():
            running = ExitStack()
            for scope in SCOPES:
                running.enter_context(kept_at_work(lambda scope=scope: start(scope)))
            return running

        def held(of):
            return errata.read(Stream(net, of), settings=settings).tuples

        def agrees():
            trades = {row["key"]: row["n"] for row in held("trades")}
            sums = {(r["product"], r["window_start"] // HOUR): r["total"] for r in held("sums")}
            high = {(r["product"], r["window_start"] // HOUR): r["total"] for r in held("high")}
            wanted = traded.recomputed()
            assert trades == {key: trade["n"] for key, trade in traded.live.items()}
            assert sums == wanted
            assert high == {where: total for where, total in wanted.items() if total > LARGE}

        worker = start("ingest.trades")
        plan = worker.plan
        stack.callback(worker.cluster.close)
        running = stack.enter_context(all_at_work())
        for number in range(3):
            traded.send(60, 3 * number)
            traded.processed(plan, plan.topology.scopes)
        agrees()
        if at_rest:
            running.close()
        broker.kill()
        assert cut(broker, plan.deployment.topic(arc), share=1 / 3)
        broker.start()
        if at_rest:
            stack.enter_context(all_at_work())
        for number in range(3, 5):
            traded.send(60, 3 * number)
            traded.processed(plan, plan.topology.scopes)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                agrees()
                break
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


def test_a_task_whose_report_a_broker_has_lost_stops(tmp_path):
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker())
        create_topics(broker.settings, [TopicSpec(TOPIC, 2)])
        cluster = KafkaCluster(broker.settings)
        stack.callback(cluster.close)
        traded = Traded(cluster, topic=TOPIC)
        worker = worker_of(broker, tmp_path, "ingest.trades")
        with at_work.at_work(worker):
            for number in range(3):
                traded.send(20, 3 * number)
                traded.processed(worker.plan, [])
        broker.kill()
        assert cut(broker, worker.shared.view.source.topic, share=1 / 2)
        broker.start()
        with pytest.raises(LostRecordsError, match="brokers have lost its last report"):
            worker_of(broker, tmp_path, "ingest.trades").run(lambda: False)
